"""Where a training step goes over its batch one sample at a time to copy each of them to the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.batches import collating
from flatout.source.code import Code
from flatout.source.copying import copies_in
from flatout.source.loaders import Loader
from flatout.source.moves import moves_to
from flatout.source.nodes import argument, bound_names, called_name, dotted, names_in, root_name, within
from flatout.source.training import Region

_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_OF_SAMPLES = re.compile(
    r"(^|_)(images?|imgs|targets?|boxes|bboxes|annotations?|annots|anns|gts?|samples|sentences|texts|graphs|scenes|points|"
    r"captions|masks|instances)(_list|_batch)?$",
    re.I,
)
# Gone over in large pieces, of which there are few.
_LARGE = re.compile(
    r"loader|batches|chunk|split|micro|accum|buffer|episode|task|domain|view|scale|level|crop|layer|stage|optim|param"
    r"|model|net|head|module|memory|state|stream",
    re.I,
)
_BATCH_SIZE = re.compile(r"^(b|bs|n|bsz|batch|batch_?size|num_samples|n_samples)$", re.I)
_MAKERS = {"tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor", "Tensor", "IntTensor", "BoolTensor"}

# What each loop around a copy binds, and what it goes over, outer first.
_Loops = list[tuple[ast.expr, ast.expr]]


@dataclass(frozen=True, slots=True)
class SampleCopy:
    region: Region
    call: ast.Call
    # What is gone over.
    over: ast.expr
    # One for each sample. A list of tensors may be a few large ones instead: scales, crops.
    is_sure: bool
    # Each sample is a dict.
    is_dict: bool = False


def copies_per_sample(code: Code) -> Iterator[SampleCopy]:
    """One for each line."""
    moving = [(region, list(_moving(region))) for region in code.training.regions]
    # Only where something is moved in a loop at all: the rest is dear.
    plain = {id(copy.call) for copy in copies_in(code)} if any(moves for _, moves in moving) else set()
    seen: set[tuple[int, int]] = set()
    for region, moves in moving:
        found = [one for call, loops in moves if (one := _per_sample(call, loops, region, plain))]
        # Next to samples that are dicts, a list is one of samples too.
        apart = any(one.is_dict for one in found) or (bool(found) and _are_kept_apart(region, code))
        for one in found:
            if (id(region.module), one.call.lineno) in seen or not (one.is_sure or apart):
                continue
            seen.add((id(region.module), one.call.lineno))
            yield one


def _moving(region: Region) -> Iterator[tuple[ast.Call, _Loops]]:
    turns = region.turns()
    around: dict[int, _Loops] = {}
    for turn in turns:
        if isinstance(turn.node, _COMPREHENSIONS):
            own = [(part.target, part.iter) for part in turn.node.generators]
            for inner in within(turn.node):
                # Comprehensions come before those inside them: inner ones add to what is there.
                around[id(inner)] = [*around.get(id(inner), []), *own]
    for turn in turns:
        call = turn.node
        if isinstance(call, ast.Call) and (moves_to(call) == "device" or argument(call, "device") is not None):
            outer = [(one.target, one.iter) for one in turn.loops if isinstance(one, ast.For) and not _trains(one)]
            loops = [*outer, *around.get(id(call), [])]
            if loops:
                yield call, loops


def _trains(loop: ast.For) -> bool:
    return any(isinstance(one, ast.Call) and called_name(one) in ("backward", "step") for one in within(loop))


def _per_sample(call: ast.Call, loops: _Loops, region: Region, plain: set[int]) -> SampleCopy | None:
    made = _made_of(call)
    if made is None and id(call) not in plain:
        return None
    what = made if made is not None else call.func.value  # type: ignore[attr-defined]
    used = [one for one in loops if bound_names(one[0]) & names_in(what)]
    if not used or any(_LARGE.search(_named(over)) for _, over in loops):
        return None
    target, over = used[-1]
    outer = loops[loops.index(used[-1]) - 1] if loops.index(used[-1]) else None
    if _is_of_a_dict(over):
        # One dict is a batch; a dict for each of something is a sample's.
        if outer is None or root_name(over) not in bound_names(outer[0]) or _is_of_a_dict(outer[1]):
            return None
        return SampleCopy(region, call, outer[1], True, True)
    if _is_by_sample(target, over, what):
        return SampleCopy(region, call, over, True)
    if dotted(over) and _OF_SAMPLES.search(_named(over)):
        return SampleCopy(region, call, over, made is not None)
    return None


def _made_of(call: ast.Call) -> ast.expr | None:
    """What `torch.tensor(x, device=device)`, or `torch.from_numpy(x).to(device)`, puts on the device."""
    made: ast.expr = call
    if moves_to(call) == "device" and isinstance(call.func, ast.Attribute):
        made = call.func.value
    elif argument(call, "device") is None:
        return None
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and called_name(made) not in _MAKERS:
        made = made.func.value
    is_maker = isinstance(made, ast.Call) and called_name(made) in _MAKERS and dotted(made.func).startswith("torch.")
    return made.args[0] if is_maker and isinstance(made, ast.Call) and made.args else None


def _is_by_sample(target: ast.expr, over: ast.expr, what: ast.expr) -> bool:
    """Pairs of a batch, `zip(images, targets)`, or `x[i]` for each i of the batch's size."""
    if isinstance(over, ast.Call) and called_name(over) == "enumerate" and over.args:
        inner = target.elts[-1] if isinstance(target, ast.Tuple) else target
        return _is_by_sample(inner, over.args[0], what)
    if isinstance(over, ast.Call) and called_name(over) == "zip":
        return len(over.args) > 1 and all(_OF_SAMPLES.search(_named(one)) for one in over.args)
    if isinstance(over, ast.Call) and called_name(over) == "range" and len(over.args) == 1:
        return isinstance(what, ast.Subscript) and _is_batch_size(over.args[0])
    # `for images, labels in parts`: each is a batch already.
    return isinstance(target, ast.Tuple) and bool(dotted(over)) and not root_name(what).endswith("s")


def _is_batch_size(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and called_name(node) == "len" and node.args:
        return bool(_OF_SAMPLES.search(_named(node.args[0])))
    if isinstance(node, ast.Call) and called_name(node) == "size":
        return bool(node.args) and getattr(node.args[0], "value", None) == 0
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return getattr(node.slice, "value", None) == 0
    return bool(_BATCH_SIZE.search(_named(node)))


def _is_of_a_dict(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and called_name(over) in ("items", "values", "keys")


def _named(node: ast.expr) -> str:
    """The last name of what is gone over."""
    if isinstance(node, ast.Call) and node.args and called_name(node) in ("enumerate", "list", "tqdm", "reversed"):
        return _named(node.args[0])
    return dotted(node).split(".")[-1]


def _are_kept_apart(region: Region, code: Code) -> bool:
    together = [one for one in code.loaders if code.training.are_together(one.function.module, region.module)]
    return any(one.trains and keeps_apart(one, code) for one in together)


def keeps_apart(loader: Loader, code: Code) -> bool:
    """Does its collate function only sort the samples' parts into lists: `tuple(zip(*batch))`, or return them as is?"""
    given = argument(loader.call, "collate_fn", 6)
    if given is None:
        return False
    if isinstance(given, ast.Lambda):
        return _only_sorts(given.body, [one.arg for one in given.args.args])
    for function in collating(given, loader.function, code):
        plain = function.definition
        if plain is None:
            continue
        names = [one.arg for one in plain.args.args]
        returned = [one.value for one in ast.walk(plain) if isinstance(one, ast.Return) and one.value is not None]
        if any(_only_sorts(one, names) for one in returned):
            return True
    return False


def _only_sorts(node: ast.expr, given: list[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in given
    inner = (
        node.args[0] if isinstance(node, ast.Call) and called_name(node) in ("tuple", "list") and node.args else node
    )
    return (
        isinstance(inner, ast.Call)
        and called_name(inner) == "zip"
        and any(isinstance(one, ast.Starred) for one in inner.args)
    )
