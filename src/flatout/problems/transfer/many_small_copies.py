"""Each step copies many small tensors to the device, one at a time.

What it is: a batch of many small tensors, or constants created on the host in each step (`torch.tensor(x).to(device)`,
`torch.tensor(x, device=device)` in a loop), each with its own copy.

Why the GPU idles: each copy from pageable memory waits for its turn in the device's queue, however small it is, and
costs the host some ten microseconds as well.

How it shows in a run: many copies a step of a few kilobytes, and their time in `h2d`. All are counted; of more than a
few dozen in a row from one line some are timed, and stand for the others.

How it shows in source: in the step, a loop or comprehension over the samples of a batch with `.to(device)` or `.cuda()`
in it: `[{k: v.to(device) for k, v in t.items()} for t in targets]`, or `torch.tensor(x[i], device=device)` for each i.
A dict, or a list of a few tensors, that makes up a whole batch is fine.

The fix: create constants once, on the device (`register_buffer`); pack what belongs together into one tensor and split
it on the device; create masks and grids there (`torch.arange(n, device=device)`).

What to expect: a few copies instead of many, and none of their waits.

When it is fine: the device is busy anyway, or the copies take less than 1% of the step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.transfer.copies import find_copies, is_small, list_sites, training_copies
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.flow.devices import moves_to
from flatout.source.syntax.nodes import (
    argument,
    bound_names,
    called_name,
    dotted_name,
    is_call,
    last_name,
    names_in,
    root_name,
    short_text,
    walk_scope,
)
from flatout.source.training.loaders import Loader, loader_argument, resolve_collate
from flatout.source.training.regions import Region

CODE = "TR202"
_MANY = 8
_OF_A_DICT = ("items", "values", "keys")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in training_copies(run) if is_small(site)]
    count = sum(site.per_step for site in sites)
    if not run.on_gpu or count < _MANY:
        return
    took_ms = min(sum(site.ms for site in sites), run.phase("h2d").ms)
    # One copy of all of it is left, at the mean cost of one.
    saved_ms = took_ms * (1 - 1 / count)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "copies_per_step": round(count, 1),
            "h2d_ms_per_step": round(took_ms, 2),
            "bytes_each": int(sum(site.bytes_per_step for site in sites) / count),
            "lines": list_sites(sites),
        },
        cause=message("tr202.cause", copies=count, copy_ms=took_ms, step_ms=run.step_ms),
        change=message("tr202.change", lines=list_sites(sites)),
        edits=Edits((LessHost(saved_ms, "h2d", is_sampled=False),)),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for copy in find_sample_copies(code):
        cause = message("tr202.source_cause", code=short_text(copy.over, 40), step=step_of(copy.region))
        yield found_in_step(copy.region, copy.call, cause, message("tr202.source_change"))


# Where a training step goes over its batch one sample at a time to copy each of them to the device.

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


def find_sample_copies(code: Code) -> Iterator[SampleCopy]:
    """One for each line."""
    moving = [(region, list(_find_moves(region))) for region in code.training.regions]
    # Only where something is moved in a loop at all: the rest is dear.
    plain = {id(copy.call) for copy in find_copies(code)} if any(moves for _, moves in moving) else set()
    seen: set[tuple[int, int]] = set()
    for region, moves in moving:
        found = [copy for call, loops in moves if (copy := _sample_copy(call, loops, region, plain))]
        # Next to samples that are dicts, a list is one of samples too.
        together = code.training.are_together
        loaders = [made for made in code.loaders if made.trains and together(made.function.module, region.module)]
        apart = any(copy.is_dict for copy in found) or (
            bool(found) and any(_keeps_apart(made, code) for made in loaders)
        )
        for copy in found:
            if (id(region.module), copy.call.lineno) in seen or not (copy.is_sure or apart):
                continue
            seen.add((id(region.module), copy.call.lineno))
            yield copy


def _find_moves(region: Region) -> Iterator[tuple[ast.Call, _Loops]]:
    points = region.main_path()
    around: dict[int, _Loops] = {}
    for point in points:
        if isinstance(point.node, _COMPREHENSIONS):
            own = [(part.target, part.iter) for part in point.node.generators]
            for inner in walk_scope(point.node):
                # Comprehensions come before those inside them: inner ones add to what is there.
                around[id(inner)] = [*around.get(id(inner), []), *own]
    for point in points:
        call = point.node
        if isinstance(call, ast.Call) and (moves_to(call) == "device" or argument(call, "device") is not None):
            outer = [
                (loop.target, loop.iter)
                for loop in point.loops
                if isinstance(loop, ast.For) and not any(is_call(node, "backward", "step") for node in walk_scope(loop))
            ]
            loops = [*outer, *around.get(id(call), [])]
            if loops:
                yield call, loops


def _sample_copy(call: ast.Call, loops: _Loops, region: Region, plain: set[int]) -> SampleCopy | None:
    made = _source_of(call)
    if made is None and id(call) not in plain:
        return None
    what = made if made is not None else call.func.value  # type: ignore[attr-defined]
    used = [loop for loop in loops if bound_names(loop[0]) & names_in(what)]
    if not used or any(_LARGE.search(_last_name(over)) for _, over in loops):
        return None
    target, over = used[-1]
    outer = loops[loops.index(used[-1]) - 1] if loops.index(used[-1]) else None
    if is_call(over, *_OF_A_DICT):
        # One dict is a batch; a dict for each of something is a sample's.
        if outer is None or root_name(over) not in bound_names(outer[0]) or is_call(outer[1], *_OF_A_DICT):
            return None
        return SampleCopy(region, call, outer[1], True, True)
    if _is_by_sample(target, over, what):
        return SampleCopy(region, call, over, True)
    if dotted_name(over) and _OF_SAMPLES.search(_last_name(over)):
        return SampleCopy(region, call, over, made is not None)
    return None


def _source_of(call: ast.Call) -> ast.expr | None:
    """What `torch.tensor(x, device=device)`, or `torch.from_numpy(x).to(device)`, puts on the device."""
    made: ast.expr = call
    if moves_to(call) == "device" and isinstance(call.func, ast.Attribute):
        made = call.func.value
    elif argument(call, "device") is None:
        return None
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and called_name(made) not in _MAKERS:
        made = made.func.value
    is_maker = (
        isinstance(made, ast.Call) and called_name(made) in _MAKERS and dotted_name(made.func).startswith("torch.")
    )
    return made.args[0] if is_maker and isinstance(made, ast.Call) and made.args else None


def _is_by_sample(target: ast.expr, over: ast.expr, what: ast.expr) -> bool:
    """Pairs of a batch, `zip(images, targets)`, or `x[i]` for each i of the batch's size."""
    if is_call(over, "enumerate") and over.args:
        inner = target.elts[-1] if isinstance(target, ast.Tuple) else target
        return _is_by_sample(inner, over.args[0], what)
    if is_call(over, "zip"):
        return len(over.args) > 1 and all(_OF_SAMPLES.search(_last_name(arg)) for arg in over.args)
    if is_call(over, "range") and len(over.args) == 1:
        return isinstance(what, ast.Subscript) and _is_batch_size(over.args[0])
    # `for images, labels in parts`: each is a batch already.
    return isinstance(target, ast.Tuple) and bool(dotted_name(over)) and not root_name(what).endswith("s")


def _is_batch_size(node: ast.expr) -> bool:
    if is_call(node, "len") and node.args:
        return bool(_OF_SAMPLES.search(_last_name(node.args[0])))
    if is_call(node, "size"):
        return bool(node.args) and getattr(node.args[0], "value", None) == 0
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return getattr(node.slice, "value", None) == 0
    return bool(_BATCH_SIZE.search(_last_name(node)))


def _last_name(node: ast.expr) -> str:
    """The last name of what is gone over."""
    if isinstance(node, ast.Call) and node.args and called_name(node) in ("enumerate", "list", "tqdm", "reversed"):
        return _last_name(node.args[0])
    return last_name(node)


def _keeps_apart(loader: Loader, code: Code) -> bool:
    """Does its collate function only sort the samples' parts into lists: `tuple(zip(*batch))`, or return them as is?"""
    given = loader_argument(loader, "collate_fn")
    if isinstance(given, ast.Lambda):
        return _only_sorts(given.body, [arg.arg for arg in given.args.args])
    functions = resolve_collate(given, loader.function, code.project) if given is not None else []
    return any(
        _only_sorts(node.value, function.parameters)
        for function in functions
        for node in ast.walk(function.node)
        if isinstance(node, ast.Return) and node.value is not None
    )


def _only_sorts(node: ast.expr, given: list[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in given
    inner = node.args[0] if is_call(node, "tuple", "list") and node.args else node
    return (
        isinstance(inner, ast.Call)
        and called_name(inner) == "zip"
        and any(isinstance(arg, ast.Starred) for arg in inner.args)
    )
