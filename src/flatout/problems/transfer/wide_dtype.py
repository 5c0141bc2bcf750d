"""Batches go to the device in a wider dtype than their values need.

What it is: images, masks or labels whose values have 8 bits are sent as float32, float64 or int64: four or eight times
the bytes. Also batches in float64, which is NumPy's default.

Why the GPU idles: the copy takes that many times longer, and so do collating, passing batches between processes and
pinning, all in proportion to the bytes.

How it shows in a run: at the lines that copy, a few of the values are sampled now and then: whole numbers up to 255,
multiples of 1/255, or 256 even steps as they are after a mean and a deviation were applied.

How it shows in source: what makes a dataset's samples divides by 255, or turns the image it has just read into floats
(`torch.from_numpy(image).float()`, `.astype(np.float32)`), in a training on a device. Torchvision's ToTensor is not
named. One finding for each dataset.

The fix: keep the bytes until they are on the device. Before: `x = to_tensor(image)` in the dataset and `x.to(device)`;
after: `torch.from_numpy(image)` in the dataset (uint8) and `x.to(device, non_blocking=True).float() .div_(255)`, then
the mean and deviation. For float64: `.astype(np.float32)` in the dataset. The device computes the same numbers.

What to expect: the copies take a quarter of the time from float32, an eighth from float64 and int64.

When it is fine: copies cost next to nothing, or the augmentation really makes other values than it was given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from flatout.model.edits import Edits, LessHost, LessStep, MoreBatch
from flatout.model.prediction import predict
from flatout.problems.found import FoundInRun, FoundInSource, loader_is_here
from flatout.problems.hot_lines import place_name
from flatout.problems.transfer.copies import blocked_ms, is_small, moving_ms, training_copies
from flatout.records.evidence import Evidence, NarrowCopy
from flatout.records.message import Message, message
from flatout.records.report import CopySite
from flatout.source.code import Code
from flatout.source.flow.devices import uses_device
from flatout.source.syntax.module import Function, own_nodes
from flatout.source.syntax.nodes import all_names_in, called_name, dotted_name, root_name, short_text
from flatout.source.training.loaders import Loader

CODE = "TR205"
# Of the bytes of a line; below this another type changes little.
_WORTH = 0.4
_SELDOM_DRAINED = 0.3
_STARVES = 0.05
_TORCH_OWN = ("default_collate", "default_convert")

_Pair = tuple[CopySite, NarrowCopy]


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    found = _find_wide_copies(run)
    if not run.on_gpu or not found:
        return
    total = sum(site.bytes_per_step for site, _ in found)
    saved = sum(_saved_bytes(pair) for pair in found)
    # By what shrinks with the bytes: what blocks the host, what is in the device's queue, what collating takes.
    ways = (_spare_blocking(run, found), _spare_queue(run, found), _spare_collating(run, saved))
    gains = [(gain.mid, edits) for edits in ways if edits is not None and (gain := predict(run, edits)) is not None]
    _, best = max(gains, key=lambda gained: gained[0], default=(1.0, None))
    site, narrow = max(found, key=_saved_bytes)
    yield FoundInRun(
        location=site.location,
        evidence={
            "mib_per_step": round(total / 2**20, 2),
            "mib_saved_per_step": round(saved / 2**20, 2),
            "dtype": narrow.dtype,
            "narrow_dtype": narrow.narrow,
            "h2d_ms_per_step": round(sum(site.ms for site, _ in found), 2),
            "lines": ", ".join(f"{place_name(s.location)} {n.dtype} for {n.narrow}" for s, n in found[:4]),
        },
        cause=message(
            "tr205.cause", mib=total / 2**20, dtype=narrow.dtype, narrow=narrow.narrow, more_mib=saved / 2**20
        ),
        change=_change(narrow),
        edits=best,
    )


def _find_wide_copies(run: Evidence) -> list[_Pair]:
    at = {narrow.location: narrow for narrow in run.narrow_copies if narrow.saved_share >= _WORTH}
    mine = [(site, at[site.location]) for site in training_copies(run) if site.location in at and not is_small(site)]
    # A model in float64 wants its inputs in it.
    dtypes = run.live_torch.get("grad_dtypes")
    in_float64 = isinstance(dtypes, dict) and float(dtypes.get("float64", 0.0)) > 0.1
    return [pair for pair in mine if pair[1].narrow != "float32" or not in_float64]


def _saved_bytes(pair: _Pair) -> float:
    return pair[0].bytes_per_step * pair[1].saved_share


def _spare_blocking(run: Evidence, found: Sequence[_Pair]) -> Edits | None:
    blocking = [pair for pair in found if pair[0].non_blocking_share < 0.5 or pair[0].pinned_share < 0.5]
    total = sum(site.bytes_per_step for site, _ in blocking)
    if not total:
        return None
    held_ms = blocked_ms(run, [site for site, _ in blocking])
    part = sum(_saved_bytes(pair) for pair in blocking) / total
    return Edits((LessHost(part * held_ms, "h2d", is_sampled=False),))


def _spare_queue(run: Evidence, found: Sequence[_Pair]) -> Edits | None:
    """Copies that do not block take their turn among the kernels: that counts where the device is never short."""
    saved = sum(
        _saved_bytes(pair) for pair in found if pair[0].non_blocking_share >= 0.5 and pair[0].pinned_share >= 0.5
    )
    drained = run.drained_share
    if drained is None or drained >= _SELDOM_DRAINED or run.starved_ms >= _STARVES * run.step_ms:
        return None
    # The device moves what it copies and computes in turn: its own copies are no more than its step.
    bus_ms = moving_ms(run, saved)
    return Edits.between((LessStep(min(part * bus_ms, 0.7 * run.step_ms)),) for part in (0.75, 1.0, 1.25))


def _spare_collating(run: Evidence, saved: float) -> Edits | None:
    """Torch's own collating copies bytes, in the training process itself where there are no workers."""
    use = run.training_loader
    if use is None or use.workers or use.cost is None or use.settings.get("collate_fn") not in _TORCH_OWN:
        return None
    if run.samples_per_step is None or run.starved_ms < _STARVES * run.step_ms:
        return None
    collate_ms = use.cost.collate_ms_per_sample * run.samples_per_step
    part = saved / max(1.0, sum(site.bytes_per_step for site in training_copies(run)))
    return Edits((MoreBatch(-min(part * collate_ms, run.starved_ms)),))


def _change(narrow: NarrowCopy) -> Message:
    if narrow.narrow == "float32":
        return message("tr205.change_float64")
    if narrow.dtype.startswith("int"):
        return message("tr205.change_integer", narrow=narrow.narrow)
    if narrow.narrow == "float16":
        return message("tr205.change_half")
    return message("tr205.change", narrow=narrow.narrow)


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[int] = set()
    for dataset in code.datasets:
        used = [made for made in dataset.trains if _reaches_a_device(made, code)]
        found = ((node, f) for f in dataset.functions for node in find_widening(f))
        node, function = next(found, (None, None)) if used else (None, None)
        if node is None or function is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield FoundInSource(
            severity="low",
            place=function.module.place(node),
            cause=message("tr205.source_cause", code=short_text(node, 50)),
            change=message("tr205.source_change"),
            related=loader_is_here(used[0]),
        )


def _reaches_a_device(made: Loader, code: Code) -> bool:
    return any(
        uses_device(region.module) and code.training.are_together(region.module, made.function.module)
        for region in code.training.regions
        if region.call_site is None
    )


# Where the making of a sample turns the bytes of a picture into floats.

_READERS = {
    "imread",
    "imdecode",
    "read_image",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "default_loader",
    "pil_loader",
}
_FLOATS = re.compile(r"float(16|32|64)?$|double$|half$")
# Values for a whole channel, not the picture.
_CONSTANTS = re.compile(r"mean|std|colou?r|palette|alpha|gamma|fill|value|thresh|scale|factor|noise|sigma", re.I)
_DEEPEST = 4


def find_widening(function: Function) -> Iterator[ast.expr]:
    """Divisions by 255, and conversions to floats of what was read from a picture's file, in the order of the text."""
    for node in own_nodes(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if _is_255(node.right) and _may_be_a_picture(node.left):
                yield node
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            if _is_255(node.value) and _may_be_a_picture(node.target):
                yield node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("div", "div_", "true_divide") and node.args and _is_255(node.args[0]):
                if _may_be_a_picture(node.func.value):
                    yield node
            elif _makes_floats(node) and _is_read(node.func.value, function, 0):
                yield node


def _is_255(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 255


def _may_be_a_picture(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant | ast.List | ast.Tuple):
        return False
    return not any(_CONSTANTS.search(name) for name in all_names_in(node))


def _makes_floats(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "float" and not call.args:
        return True
    if call.func.attr not in ("astype", "to", "type") or not call.args:
        return False
    given = call.args[0]
    text = str(given.value) if isinstance(given, ast.Constant) else dotted_name(given)
    return bool(_FLOATS.search(text))


def _is_read(node: ast.expr, function: Function, depth: int) -> bool:
    """Does it come, through this function alone, from a picture's file?"""
    if depth > _DEEPEST:
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and (called_name(inner) in _READERS or dotted_name(inner.func) == "Image.open"):
            return True
    while (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and root_name(node.func) in ("np", "torch")
    ):
        if not node.args:
            return False
        node = node.args[0]
    name = root_name(node)
    return bool(name) and any(_is_read(value, function, depth + 1) for value in function.bindings.get(name, ()))
