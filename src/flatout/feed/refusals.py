"""Why a loader cannot have workers, or more of them, told before any process is started."""

from __future__ import annotations

import ast
import io
import pickle
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import CodeType
from typing import Any

from torch.utils.data import IterableDataset

# What a dataset's code names when it gives each worker its own share.
_SHARDING = {"get_worker_info", "worker_info", "split_by_worker", "sharding_filter", "apply_sharding"}


def refusal(dataset: Any, collate_fn: Any, worker_init_fn: Any, start_method: str) -> str | None:
    """The reason in one sentence, None when workers can be started by `start_method`."""
    if isinstance(dataset, IterableDataset) and worker_init_fn is None and not _is_sharded(dataset):
        return (
            f"{type(dataset).__qualname__} is iterable and does not ask which worker it is in (get_worker_info): "
            f"every worker would give all of its samples"
        )
    if start_method == "fork":
        return None
    for what, value in (("dataset", dataset), ("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        why = _unpicklable(value)
        if why is not None:
            return f"the {what} cannot be sent to workers started by {start_method!r}: {why}"
    if not _main_is_guarded():
        return (
            f"workers started by {start_method!r} import the script again, and it has no "
            f'`if __name__ == "__main__":` around what it does'
        )
    return None


def _unpicklable(value: Any) -> str | None:
    try:
        ForkingPickler(_Nowhere(), 5).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return str(error)
    return None


class _Nowhere(io.RawIOBase):
    """Takes any number of bytes and keeps none."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _is_sharded(dataset: Any) -> bool:
    methods = [vars(cls) for cls in type(dataset).__mro__ if cls not in (IterableDataset, object)]
    codes = [getattr(member, "__code__", None) for names in methods for member in names.values()]
    return any(_SHARDING & set(names) for code in codes if code is not None for names in _names(code))


def _names(code: CodeType) -> Iterator[tuple[str, ...]]:
    yield code.co_names
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
    guarded = any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in body)
    harmless = (
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
    )
    return guarded or all(isinstance(node, harmless) or _is_text(node) for node in body)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
