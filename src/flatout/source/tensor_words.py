"""Names by which tensors, models and what makes or reads them are known in people's training code."""

from __future__ import annotations

import re

FRAMEWORK_MOVES = re.compile(r"accelerator\b|fabric\b|LightningModule|lightning|Trainer\b")
# Methods, and functions of the language, that give no tensor of the device.
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
# What gives pairs of a name and something.
PAIRS = {"named_parameters", "named_buffers", "named_modules", "named_children", "items"}
