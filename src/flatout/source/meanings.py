"""Which names of a config mean which setting of torch. Only names whose meaning is certain are here."""

from __future__ import annotations

import re

from flatout.source.leaves import Path_

_MEANINGS = {
    "num_workers": "num_workers workers_per_gpu dataloader_num_workers n_workers num_loader_workers num_data_workers",
    "batch_size": "batch_size samples_per_gpu per_device_train_batch_size dataloader_batch_size train_batch_size",
    "prefetch_factor": "prefetch_factor dataloader_prefetch_factor",
    "pin_memory": "pin_memory dataloader_pin_memory",
    "persistent_workers": "persistent_workers dataloader_persistent_workers",
    "cudnn_benchmark": "cudnn_benchmark",
    "cudnn_deterministic": "cudnn_deterministic",
    "tf32": "tf32 allow_tf32 use_tf32 matmul_allow_tf32",
    "amp": "amp use_amp amp_enabled enable_amp fp16 bf16 use_fp16 use_bf16 mixed_precision autocast",
    "precision": "precision",
    "compile": "compile use_compile compile_model torch_compile use_torch_compile",
}
NAMES = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}
# Names that mean it only on a command line, where there is no section to say otherwise.
_ON_COMMAND_LINE = {"workers": "num_workers", "j": "num_workers"}
# Those that stand for "on" when nothing follows them.
FLAGS = frozenset(
    {"pin_memory", "persistent_workers", "cudnn_benchmark", "cudnn_deterministic", "tf32", "amp", "compile"}
)
# Within such a section a bare `enabled` or `benchmark` is clear.
_IN_SECTION = {
    ("fp16", "enabled"): "amp",
    ("bf16", "enabled"): "amp",
    ("amp", "enabled"): "amp",
    ("cudnn", "benchmark"): "cudnn_benchmark",
    ("cudnn", "deterministic"): "cudnn_deterministic",
}
_ELSEWHERE = re.compile(
    r"val|valid|validation|test|eval|evaluation|infer|inference|predict|export|demo|serve|make|preprocess"
)


def meaning(path: Path_, on_command_line: bool = False) -> str | None:
    """What the value at this path sets in training; None where that is not certain."""
    parts = [_plain(part) for part in path]
    if any(_ELSEWHERE.fullmatch(word) for part in parts for word in part.split("_")):
        return None
    key = parts[-1].removeprefix("train_") if parts[-1] not in NAMES else parts[-1]
    if len(parts) > 1 and (parts[-2], key) in _IN_SECTION:
        return _IN_SECTION[parts[-2], key]
    if on_command_line and len(parts) == 1 and key in _ON_COMMAND_LINE:
        return _ON_COMMAND_LINE[key]
    return NAMES.get(key)


def _plain(name: str) -> str:
    return name.strip("-").lower().replace("-", "_")
