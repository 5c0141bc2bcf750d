"""Leaves a loader alone where (more) workers would duplicate samples, fail, or hang."""

from __future__ import annotations

from typing import Any

from .arguments import LeftAlone

_LOOKED_AT = 64


def refuse_hazards(torch: Any, arguments: dict[str, Any]) -> None:
    """Raises LeftAlone where workers would not do the same work."""
    # Not at the top: it imports torch, which the script may not have done yet.
    from ...feed.refusals import refusal

    dataset = arguments["dataset"]
    if any(getattr(value, "is_cuda", False) for value in list(getattr(dataset, "__dict__", {}).values())[:_LOOKED_AT]):
        raise LeftAlone("its dataset holds tensors on the GPU, which workers cannot use")
    start_method = _start_method(torch, arguments.get("multiprocessing_context"))
    why = refusal(dataset, arguments.get("collate_fn"), arguments.get("worker_init_fn"), start_method)
    if why is not None:
        raise LeftAlone(why)


def _start_method(torch: Any, context: Any) -> str:
    if isinstance(context, str):
        return context
    if context is not None and hasattr(context, "get_start_method"):
        return str(context.get_start_method())
    return str(torch.multiprocessing.get_start_method())
