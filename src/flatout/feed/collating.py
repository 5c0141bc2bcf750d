"""torch's default collation with the batch's memory taken from where it is sent from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

from .memory import Segment


class Collator:
    """Calls a loader's `collate_fn` in a worker.

    Only torch's own collation writes right into shared memory: one of the user's may keep what it made, and a segment
    is written anew. Inside a worker torch would take fresh shared memory for every batch; this spares that as well.
    """

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self._collate_fn = collate_fn
        self._segment: Segment | None = None
        self.is_default = collate_fn is torch_collate.default_collate
        self._stack = torch_collate.default_collate_fn_map.get(torch.Tensor)
        if self._stack is torch_collate.collate_tensor_fn:
            torch_collate.default_collate_fn_map[torch.Tensor] = self._stack_tensors

    def __call__(self, samples: Any, segment: Segment | None) -> Any:
        self._segment = segment
        try:
            return self._collate_fn(samples)
        finally:
            self._segment = None

    def _stack_tensors(self, samples: Any, *, collate_fn_map: Any = None) -> Any:
        first = samples[0]
        if type(first) is not torch.Tensor or first.layout != torch.strided or first.is_nested:
            return torch_collate.collate_tensor_fn(samples, collate_fn_map=collate_fn_map)
        return torch.stack(samples, 0, out=self._memory_for(first, len(samples)))

    def _memory_for(self, first: torch.Tensor, count: int) -> torch.Tensor | None:
        size = count * first.nbytes
        at = self._segment.reserve(size) if self._segment is not None and size and first.device.type == "cpu" else None
        if at is None:
            return None
        assert self._segment is not None
        memory = torch.frombuffer(self._segment.mapped, dtype=torch.uint8, count=size, offset=at)
        shape = (count, *first.size())
        stride = torch.empty(shape, dtype=first.dtype, device="meta").stride()
        return torch.empty(0, dtype=first.dtype).set_(memory.untyped_storage(), 0, shape, stride)
