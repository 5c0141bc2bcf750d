"""Work on the fetched batch with libraries of the host, in the thread that trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.source.code import Code
from flatout.source.module import Function, Module
from flatout.source.nodes import argument, called_name, dotted, names_in, root_name
from flatout.source.training import Region

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


def host_work_in(code: Code) -> Iterator[tuple[Region, ast.Call, str]]:
    """The region, the call, and what it does; once for each line."""
    seen: set[tuple[int, int]] = set()
    for region, turn in code.each_step():
        call = turn.node
        if not isinstance(call, ast.Call) or not _takes_batches(region):
            continue
        what = _what(call, region, code)
        if what and (id(region.module), call.lineno) not in seen:
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
    parts = [one for whole in (over, *shown) for one in ast.walk(whole) if isinstance(one, ast.expr)]
    return any(_BATCHES.search(dotted(one).split(".")[-1]) for one in parts if dotted(one))


def _what(call: ast.Call, region: Region, code: Code) -> str:
    name = called_name(call)
    if _TOKENIZER.search(name) and (argument(call, "return_tensors") or argument(call, "padding")):
        return "turns text into tokens"
    if name in _FROM_ARRAYS and root_name(call.func) == "torch" and _is_a_round_trip(call, region, code):
        return "takes the batch to NumPy and back"
    library = _library_of(call.func, region.module)
    work = _WORK.get(library)
    if work is None or not work.search(name) or _is_of_the_model(call, region):
        return ""
    return f"works on data with {library}"


def _library_of(func: ast.expr, module: Module) -> str:
    brought = module.imports.get(root_name(func))
    return brought.module.split(".")[0] if brought is not None else ""


def _is_of_the_model(call: ast.Call, region: Region) -> bool:
    """In a module's own forward, or on what was read back from the device: the workers could not do it."""
    of = region.function.owner
    if of is not None and any("Module" in base for base in of.bases):
        return True
    return _was_on_device(call, region.function, 0)


def _was_on_device(node: ast.expr, function: Function, depth: int) -> bool:
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and called_name(one) in ("cpu", "detach", "model", "net"):
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
    tensors = code.kinds.of(region)
    return any(
        isinstance(one, ast.Call)
        and called_name(one) == "numpy"
        and isinstance(one.func, ast.Attribute)
        and tensors.of(one.func.value) in ("host", None)
        for given in (*inner.args, *(keyword.value for keyword in inner.keywords))
        for one in ast.walk(given)
    )
