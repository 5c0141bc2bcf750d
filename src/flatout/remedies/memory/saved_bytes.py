"""How many bytes a part of the model keeps for backward, and how many there is room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# With all that the training needs besides; and of what a computer without a GPU has free.
_OF_DEVICE = 0.8
_OF_HOST = 0.5


class SavedBytes:
    """Of the calls that were counted."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.bytes = 0
        self.calls = 0
        self.device: Any = None

    @contextmanager
    def counted(self, given: Any) -> Iterator[None]:
        """What autograd saves within is counted, but for what was given: inputs and weights are there anyway."""
        known = {_place(one) for one in given if isinstance(one, self._torch.Tensor)}

        def pack(tensor: Any) -> Any:
            place = _place(tensor)
            if place not in known:
                known.add(place)
                self.bytes += tensor.untyped_storage().nbytes()
                self.device = tensor.device
            return tensor

        with self._torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self.calls += 1


def _place(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a tensor of a kind without a storage
        return id(tensor)


def room_bytes(torch: Any, device: Any) -> float:
    """For what is to be kept: below zero where the training itself has come to the limit."""
    if device is not None and device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What this process has reserved it can use, as far as the script lets it; what it used at most it will again.
        usable = min(free + torch.cuda.memory_reserved(device), _allowed_share(torch, device) * total)
        return float(_OF_DEVICE * usable - torch.cuda.max_memory_allocated(device))
    from ...feed.host_memory import free_bytes

    free = free_bytes()
    return float("inf") if free is None else _OF_HOST * free


def _allowed_share(torch: Any, device: Any) -> float:
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    try:
        return 1.0 if ask is None else float(ask(device))
    except (RuntimeError, ValueError, TypeError):
        return 1.0
