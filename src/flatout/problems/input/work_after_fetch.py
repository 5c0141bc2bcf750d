"""The training loop preprocesses each batch itself, in the thread that launches kernels.

What it is: after the loader has delivered a batch, the loop still decodes, augments, tokenises or pads it with NumPy,
OpenCV, PIL or plain Python, before the model sees it.

Why the GPU idles: this work runs in the one thread that launches the model, while the workers, which could do it, are
idle.

How it shows in a run: time between the batch's arrival and the backward pass under lines of your code that call such
libraries.

How it shows in source: in a step that takes its batches from a loader, calls of OpenCV, PIL, scikit-image, SciPy or
librosa that make or change data, a tokenizer that pads or returns tensors, or a batch that goes to NumPy and back. Not
on what the model gave, and not drawing or writing.

The fix: do it in the dataset's `__getitem__` or in the collate function, so that it runs in the workers; or on the
device, with torch operations on the whole batch.

What to expect: the step loses that time, as far as the workers can take it on.

When it is fine: the device is busy meanwhile, or the work needs the model's own output.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from functools import lru_cache

from flatout.model.edits import Edits, LessHost, MoreBatch, Workers
from flatout.model.measured import batch_ms, computing_share, library_threads
from flatout.model.prediction import predict
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.hot_lines import HotLoop, find_hot_loops, host_lines, lines_in, place_name
from flatout.problems.input.loading import spare_cpus
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import Message, message
from flatout.records.report import LineCost
from flatout.source.code import Code
from flatout.source.syntax.module import Function, parse_text
from flatout.source.syntax.nodes import (
    argument,
    called_name,
    dotted_name,
    is_call,
    last_name,
    names_in,
    root_name,
    short_text,
)
from flatout.source.training.regions import Region

CODE = "IN109"
_WORTH = 0.05
# Libraries that work on data in the host's memory, outside of any model.
_ON_DATA = frozenset((
    "numpy", "scipy", "cv2", "PIL", "skimage", "imgaug", "albumentations", "imageio", "librosa", "soundfile", "pandas",
    "tokenizers", "sentencepiece", "tiktoken", "nltk", "spacy", "re", "zlib", "gzip", "lzma", "bz2", "json", "random",
    "unicodedata", "string", "hashlib", "base64", "struct", "io",
))  # fmt: skip
# A function that uses such a library and none of these works on data, and so does who calls it.
_OF_TORCH = {"torch", "nn", "F", "functional", "self"}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not run.step_ms:
        return
    lines, loops = _work_on_data(run)
    moved_ms = sum(line.ms for line in lines)
    if not lines or moved_ms < _WORTH * run.step_ms:
        return
    dearest = lines[0]
    place = place_name(dearest.location)
    change = message("in109.change", place=place)
    yield FoundInRun(
        location=dearest.location,
        evidence={
            "work_ms_per_step": round(moved_ms, 2),
            "lines": len(lines),
            "num_workers": use.workers,
            "loading_ms_per_step": round(batch_ms(run, use) or 0.0, 2),
        },
        cause=message("in109.cause", place=place, moved_ms=moved_ms, step_ms=run.step_ms),
        change=change if use.workers else message("in109.change_workers", change=change),
        edits=_edits(run, use, moved_ms, loops),
    )


def _work_on_data(run: Evidence) -> tuple[list[LineCost], list[HotLoop]]:
    """Lines that work on data, with all lines of the loops over samples that they are in, and these loops."""
    forward = [line for line in host_lines(run) if line.phase == "forward"]
    on_data = [line for line in forward if line.location.line in _lines_on_data(run.files.get(line.location.file, ""))]
    stepping = lines_in(run, "backward", "optimizer", "data")
    loops = [
        hot
        for hot in find_hot_loops(run, forward, stepping)
        if not hot.loop.heavy and any(line in hot.lines for line in on_data) and _is_python(run, hot)
    ]
    lines = [line for line in forward if line in on_data or any(line in hot.lines for hot in loops)]
    return lines, loops


def _is_python(run: Evidence, hot: HotLoop) -> bool:
    """Native code does the same for each sample, whoever calls it; Python is spared. What is not known is native."""
    places = {line.location for line in hot.lines}
    seen = [entry for entry in run.ledger.entries if entry.phase == "forward" and entry.location in places]
    return sum(entry.ms if entry.nature == "python" else -entry.ms for entry in seen) > 0


def _edits(run: Evidence, use: LoaderUse, moved_ms: float, loops: list[HotLoop]) -> Edits | None:
    """The better of two ways: workers do it, or, where it goes sample by sample, it is done at once for the batch."""
    most = max(use.workers, math.floor(spare_cpus(run) / computing_share(run, use)))
    # Threads of a library go where its calls go. Workers may be as many as there are CPUs.
    moved = MoreBatch(moved_ms, 1.0 + library_threads(run))
    ways = [Edits((LessHost(moved_ms, "forward"), Workers(most), moved))] if most >= 1 else []
    if loops:
        parts = zip(*(hot.left() for hot in loops), strict=True)
        at_once = Edits.between(
            (LessHost(sum(hot.ms * (1.0 - left) for hot, left in zip(loops, case, strict=True)), "forward"),)
            for case in parts
        )
        ways.append(at_once)
    return max(ways, key=lambda way: gain.mid if (gain := predict(run, way)) is not None else 1.0, default=None)


@lru_cache(maxsize=64)
def _lines_on_data(text: str) -> frozenset[int]:
    """Lines of a file whose statement uses a name imported from such a library, outside of classes of modules."""
    module = parse_text(text)
    tree = module.tree
    # The names under which the file knows those libraries, what is in them, and what it made of them at its top.
    names = {name for name in module.imports if module.library_of(name) in _ON_DATA}
    for top in tree.body:
        if isinstance(top, ast.Assign) and isinstance(top.value, ast.Call) and _uses(top.value, names):
            names |= {target.id for target in top.targets if isinstance(target, ast.Name)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names |= {node.name for node in functions if _uses(node, names) and not _uses(node, _OF_TORCH)}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    models = [cls for cls in classes if any("Module" in ast.unparse(base) for base in cls.bases)]
    inside = {line for model in models for line in _span(model)}
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and _uses(node, names):
            found |= _span(node)
    return frozenset(found - inside)


def _uses(node: ast.AST, names: set[str]) -> bool:
    read = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load))
    return any(name.id in names for name in read)


def _span(node: ast.AST) -> set[int]:
    first = getattr(node, "lineno", 0)
    return set(range(first, (getattr(node, "end_lineno", None) or first) + 1))


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, call, work in find_host_work(code):
        cause = message("in109.source_cause", code=short_text(call, 40), work=work, step=step_of(region))
        yield found_in_step(region, call, cause, message("in109.source_change"))


# Work on the fetched batch with libraries of the host, in the thread that trains.

# By their library: what they call to make or change data. Drawing and writing is for people, and seldom.
_WORK: dict[str, re.Pattern[str]] = {
    "cv2": re.compile(
        r"^(resize|cvtColor|warp\w+|\w*[bB]lur|imdecode|imread|remap|flip|filter2D|rotate|equalizeHist|copyMakeBorder|"
        r"Canny|dilate|erode|morphologyEx|getRotationMatrix2D)$"
    ),
    "PIL": re.compile(r"^open$"),
    "skimage": re.compile(r"^(resize|rescale|rotate|warp|gaussian|equalize_\w+|imread|rgb2\w+)$"),
    "scipy": re.compile(
        r"^(zoom|rotate|shift|affine_transform|map_coordinates|gaussian_filter\w*|distance_transform_\w+)$"
    ),
    "librosa": re.compile(r"^(stft|istft|load|resample|melspectrogram|mfcc|time_stretch|pitch_shift|power_to_db|cqt)$"),
}
_BATCHES = re.compile(r"loader|batches|(^|_)dl$", re.I)
_TOKENIZER = re.compile(r"tokeni[sz]e(r|rs)?$")
_FROM_ARRAYS = {"from_numpy", "as_tensor", "tensor"}


def find_host_work(code: Code) -> Iterator[tuple[Region, ast.Call, Message]]:
    """The region, the call, and what it does; once for each line."""
    seen: set[tuple[int, int]] = set()
    for region, point in code.each_step():
        call = point.node
        if not isinstance(call, ast.Call) or not _takes_batches(region):
            continue
        what = _describe_work(call, region, code)
        if what is not None and (id(region.module), call.lineno) not in seen:
            seen.add((id(region.module), call.lineno))
            yield region, call, what


def _takes_batches(region: Region) -> bool:
    loop = region.root.loop
    if loop is None:
        return region.root.function.name == "training_step"
    over = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    if over is None:
        return False
    # `bar = tqdm(loader)`, and then a loop over the bar.
    shown = [value for name in names_in(over) for value in region.root.function.bindings.get(name, ())]
    parts = [node for whole in (over, *shown) for node in ast.walk(whole) if isinstance(node, ast.expr)]
    return any(_BATCHES.search(last_name(part)) for part in parts if dotted_name(part))


def _describe_work(call: ast.Call, region: Region, code: Code) -> Message | None:
    name = called_name(call)
    if _TOKENIZER.search(name) and (argument(call, "return_tensors") or argument(call, "padding")):
        return message("in109.tokenizes")
    if name in _FROM_ARRAYS and root_name(call.func) == "torch" and _is_a_round_trip(call, region, code):
        return message("in109.round_trip")
    library = region.module.library_of(root_name(call.func))
    work = _WORK.get(library)
    if work is None or not work.search(name) or _is_of_the_model(call, region):
        return None
    return message("in109.library", library=library)


def _is_of_the_model(call: ast.Call, region: Region) -> bool:
    """In a module's own forward, or on what was read back from the device: the workers could not do it."""
    of = region.function.owner
    if of is not None and any("Module" in base for base in of.bases):
        return True
    return _was_on_device(call, region.function, 0)


def _was_on_device(node: ast.expr, function: Function, depth: int) -> bool:
    for inner in ast.walk(node):
        if is_call(inner, "cpu", "detach", "model", "net"):
            return True
    if depth > 2:
        return False
    values = [value for name in names_in(node) for value in function.bindings.get(name, ())]
    return any(_was_on_device(value, function, depth + 1) for value in values if value is not node)


def _is_a_round_trip(call: ast.Call, region: Region, code: Code) -> bool:
    """`torch.from_numpy(augment(images.numpy()))` of a batch as the loader handed it over."""
    inner = call.args[0] if call.args else None
    if not isinstance(inner, ast.Call) or called_name(inner) == "numpy" or _was_on_device(inner, region.function, 0):
        return False
    tensors = code.tensors.of(region)
    return any(
        isinstance(node, ast.Call)
        and called_name(node) == "numpy"
        and isinstance(node.func, ast.Attribute)
        and tensors.of(node.func.value) in ("host", None)
        for given in (*inner.args, *(keyword.value for keyword in inner.keywords))
        for node in ast.walk(given)
    )
