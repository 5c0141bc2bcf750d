"""Why a loader cannot have (more) workers: what would duplicate samples, fail, or hang."""

from __future__ import annotations

import ast
import inspect
import pickle
import sys
from pathlib import Path
from typing import Any

from .arguments import LeftAlone

_SHARDED = ("get_worker_info", "worker_info", "split_by_worker", "nodesplitter")
_LOOKED_AT = 64


def refuse_hazards(torch: Any, arguments: dict[str, Any]) -> None:
    """Raises LeftAlone where workers would not do the same work."""
    dataset, context = arguments["dataset"], arguments.get("multiprocessing_context")
    if isinstance(dataset, torch.utils.data.IterableDataset) and not _is_sharded(dataset):
        raise LeftAlone("an IterableDataset that is not sharded would give every sample once a worker")
    if any(getattr(value, "is_cuda", False) for value in list(getattr(dataset, "__dict__", {}).values())[:_LOOKED_AT]):
        raise LeftAlone("its dataset holds tensors on the GPU, which workers cannot use")
    if _start_method(torch, context) != "fork":
        _refuse_unpicklable(arguments)
        _refuse_unguarded()


def _is_sharded(dataset: Any) -> bool:
    """Whether its classes speak of workers. What cannot be read counts as not sharded: silence would be duplicates."""
    try:
        text = "".join(inspect.getsource(kind) for kind in type(dataset).__mro__[:-1] if kind.__module__ != "builtins")
    except (OSError, TypeError):
        return False
    own = text.partition("class IterableDataset(")[0]
    return any(word in own for word in _SHARDED)


def _start_method(torch: Any, context: Any) -> str:
    if isinstance(context, str):
        return context
    if context is not None and hasattr(context, "get_start_method"):
        return str(context.get_start_method())
    return str(torch.multiprocessing.get_start_method())


def _refuse_unpicklable(arguments: dict[str, Any]) -> None:
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        try:
            pickle.dumps(arguments.get(name))
        except Exception as error:
            raise LeftAlone(f"its {name} cannot be pickled for a worker that is spawned ({error})") from None


def _refuse_unguarded() -> None:
    """A spawned worker imports the main script again: without a guard it would train there."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file or not Path(file).is_file():
        return
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return
    if not any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in tree.body):
        raise LeftAlone('the script has no `if __name__ == "__main__":`, which workers that are spawned need')
