"""Why a loader cannot have workers, or more of them, told before any process is started."""

from __future__ import annotations

import ast
import functools
import io
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import CodeType
from typing import Any

from torch.utils.data import IterableDataset

from ..records.message import Message, message

# What code names when it gives each worker its own share.
_SHARDING = {
    "get_worker_info",
    "worker_info",
    "split_by_worker",
    "nodesplitter",
    "workersplitter",
    "sharding_filter",
    "apply_sharding",
}


def why_no_workers(dataset: Any, collate_fn: Any, worker_init_fn: Any, start_method: str) -> Message | None:
    """None when workers can be started by `start_method`."""
    if isinstance(dataset, IterableDataset) and not _is_sharded(dataset, worker_init_fn):
        return message("workers.not_sharded", dataset=type(dataset).__qualname__)
    if start_method == "fork":
        return None
    if not _main_is_guarded():
        return message("workers.main_not_guarded", method=start_method)
    for what, value in (("dataset", dataset), ("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        why = _unpicklable(value)
        if why is not None:
            return message("workers.unpicklable", argument=what, method=start_method, error=why)
    return None


def _unpicklable(value: Any) -> str | None:
    try:
        ForkingPickler(_Nowhere(), 5).dump(value)
    except Exception as error:
        # A class of the user's may raise anything when it is pickled.
        return f"{type(error).__name__}: {error}"
    return None


class _Nowhere(io.RawIOBase):
    """Takes any number of bytes and keeps none."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _is_sharded(dataset: Any, worker_init_fn: Any) -> bool:
    """Whether its classes, or what every worker calls first, speak of workers. If not, samples would come twice."""
    members = [
        member
        for kind in type(dataset).__mro__
        if kind not in (IterableDataset, object)
        for member in vars(kind).values()
    ]
    codes = [getattr(_function_of(member), "__code__", None) for member in [*members, worker_init_fn]]
    return any(_SHARDING & names for code in codes if code is not None for names in _names(code))


def _function_of(member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, functools.partial):
        return member.func
    return member.fget if isinstance(member, property) else member


def _names(code: CodeType) -> Iterator[set[str]]:
    yield {*code.co_names, *code.co_varnames}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _main_is_guarded() -> bool:
    """Whether the script can be imported without running. Where that cannot be told: yes."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if file is None:
        return True
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    return any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in body)
