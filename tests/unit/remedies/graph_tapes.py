"""Tapes as a GPU has them, on the CPU: every operation is kept with the memory it wrote, and done again into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Of an operation with which the host waits for a value.
_WAITS = ("_local_scalar_dense", "nonzero", "equal")


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(func) for name in _WAITS):
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, before in self.operations:
                read = {_place(one) for one in _tensors((args, kwargs))}
                for old, new in zip(_tensors(before), _tensors(func(*args, **kwargs)), strict=True):
                    if _place(old) not in read and _place(new) != _place(old):
                        old.copy_(new)


def _tensors(value: Any) -> list[Any]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


class CpuTapes:
    """Takes the place of `CudaTapes`."""

    def __init__(self, room_bytes: int = 1 << 40) -> None:
        self.recorded = 0
        self._room_bytes = room_bytes

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        with _Recording() as recording:
            result = call()
        self.recorded += 1
        return result, recording.replay

    def random_state(self) -> Any:
        return bytes(torch.get_rng_state().tolist())

    def set_random_state(self, state: Any) -> None:
        torch.set_rng_state(torch.tensor(list(state), dtype=torch.uint8))

    def held_bytes(self) -> int:
        return 0 if self.recorded else 1 << 20

    def room_bytes(self) -> int:
        return self._room_bytes

    def place(self) -> object:
        return None
