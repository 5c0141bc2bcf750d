"""Moves of tensors between host and device, and the names by which training code calls tensors, models and losses."""

from __future__ import annotations

import ast
import re
from typing import Literal

from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import argument, called_name, is_call, last_name

_DEVICE_WORDS = re.compile(r"\bcuda\b|\.to\(|\bdevice\b|accelerat|[Ff]abric|[Ll]ightning|\bxpu\b|\bmps\b")
_DEVICE_NAME = re.compile(r"device|dev$|gpu|cuda|rank|accelerator", re.I)
_HOST_NAME = re.compile(r"(^|_)cpu(_|$)", re.I)
_DTYPE = re.compile(r"dtype|float|half|long|int|bool|double|uint8|channels_last|memory_format", re.I)


def uses_device(module: Module) -> bool:
    """Does a file name a device at all? Without one there is nothing to wait for."""
    return bool(_DEVICE_WORDS.search(module.text))


def moves_to(call: ast.Call) -> Literal["device", "host"] | None:
    """Where `.to(…)`, `.cuda()` or `.cpu()` moves its receiver; None if it does not move it."""
    name = called_name(call)
    if not isinstance(call.func, ast.Attribute):
        return None
    if name in ("cuda", "xpu"):
        return "device"
    if name == "cpu":
        return "host"
    if name != "to":
        return None
    given = argument(call, "device") or (call.args[0] if call.args else None)
    if isinstance(given, ast.Constant):
        if isinstance(given.value, int) and not isinstance(given.value, bool):
            return "device"
        return None if not isinstance(given.value, str) else "host" if given.value.startswith("cpu") else "device"
    if is_call(given, "device"):
        return "host" if given.args and _begins(given.args[0]).startswith("cpu") else "device"
    if given is not None and _begins(given).startswith(("cuda", "cpu")):
        return "host" if _begins(given).startswith("cpu") else "device"
    if is_call(given, "get_device", "current_device"):
        return "device"
    name = last_name(given) if given is not None else ""
    if _HOST_NAME.search(name):
        return "host"
    if not name or (_DTYPE.search(name) and not _DEVICE_NAME.search(name)):
        return None
    return "device" if _DEVICE_NAME.search(name) else None


def _begins(node: ast.expr) -> str:
    """How a composed text begins: `"cuda:{}".format(rank)`, `f"cuda:{rank}"`, `"cuda:" + rank`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _begins(node.func.value)
    if isinstance(node, ast.JoinedStr):
        return _begins(node.values[0]) if node.values else ""
    if isinstance(node, ast.BinOp):
        return _begins(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


FRAMEWORK_MOVES = re.compile(r"accelerator\b|fabric\b|LightningModule|lightning|Trainer\b")
# Methods and builtins that do not give a tensor on the device.
HOST_METHODS = {
    "item", "tolist", "numpy", "size", "dim", "numel", "ndimension", "cpu", "format", "join", "time", "perf_counter",
    "get_last_lr", "data_ptr", "element_size", "is_contiguous", "keys", "stride", "get_device",
}  # fmt: skip
HOST_BUILTINS = {
    "len", "int", "float", "str", "bool", "repr", "round", "range", "isinstance", "hasattr", "print", "id", "type",
}  # fmt: skip
HOST_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "grad_fn", "itemsize", "nbytes"}
DETACHING = {"detach", "detach_", "clone_detached"}
JOINING = {
    "sum", "max", "min", "abs", "list", "tuple", "sorted", "zip", "dict", "reversed", "set", "next", "iter",
    "enumerate",
}  # fmt: skip
MAKERS = {
    "tensor", "as_tensor", "zeros", "ones", "full", "empty", "arange", "linspace", "rand", "randn", "randint",
    "randperm", "eye", "from_numpy", "Tensor", "FloatTensor", "LongTensor",
}  # fmt: skip
TORCH = {"torch", "F", "nn", "functional", "einops", "TF", "kornia"}
HOST_MODULES = {
    "np", "numpy", "math", "random", "time", "os", "json", "cv2", "PIL", "plt", "pd", "scipy", "sklearn", "datetime",
}  # fmt: skip
MODEL = re.compile(
    r"(^|_)(model|net|network|backbone|encoder|decoder|critic|actor|policy|generator|discriminator|unet|vae|gan|bert|ddp|"
    r"module|head|classifier|detector|student|netg|netd|engine|embedder|transformer)\d*(_|$)|^[gd]$|^net|model$",
    re.I,
)
LOSS = re.compile(r"loss|criterion|criteria|objective|crit(_|$)", re.I)
LOADER = re.compile(r"loader|dataloader|batches|(^|_)dl$", re.I)
TO_DEVICE = re.compile(r"to_device|to_cuda|to_gpu|move_to|send_to|cuda|copy_to_device|prepare_batch|move_data", re.I)
COUNTING = re.compile(r"averag|meter|metric|track|smooth|stat|record|accum|ema|log", re.I)
# Methods that give pairs of a name and something.
PAIRS = {"named_parameters", "named_buffers", "named_modules", "named_children", "items"}
