"""Brings batches to the device ahead of time, on a stream of their own, while the model works on the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .leaves import Path, leaves, replaced

Wanted = Callable[[Path, torch.Tensor], bool]


class Ahead:
    """Copies batches on a side stream and hands them over so that no kernel sees one that is not there yet."""

    def __init__(self, device: torch.device, wanted: Wanted | None = None) -> None:
        self._device = device
        self._wanted = wanted
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Start copying; gives back what `arrived` needs."""
        if self._stream is None:
            return replaced(batch, self._moved), None
        with torch.cuda.stream(self._stream):
            moved = replaced(batch, self._moved)
            return moved, self._stream.record_event()

    def arrived(self, started: tuple[Any, Any]) -> Any:
        """The batch, for use on the current stream. The host does not wait."""
        moved, event = started
        if event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            for _, tensor in leaves(moved):
                if tensor.is_cuda:
                    # Its memory must not be handed to the next copy while this stream still reads it.
                    tensor.record_stream(current)
        return moved

    def _moved(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        if self._wanted is not None and not self._wanted(path, tensor):
            return tensor
        return tensor.to(self._device, non_blocking=tensor.is_pinned() if self._stream is not None else False)


class Prefetched:
    """A loader whose batches arrive on the device; everything else is the loader's own."""

    def __init__(self, loader: Iterable[Any], device: torch.device | str | int, depth: int = 1) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._loader = loader
        self._device = torch.device(device)
        self._depth = depth

    def __iter__(self) -> Iterator[Any]:
        ahead, started = Ahead(self._device), deque[tuple[Any, Any]]()
        batches = iter(self._loader)
        for batch in batches:
            started.append(ahead.begin(batch))
            if len(started) > self._depth:
                yield ahead.arrived(started.popleft())
        while started:
            yield ahead.arrived(started.popleft())

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)  # while being unpickled there is none yet
        return getattr(self._loader, name)


def prefetch(loader: Iterable[Any], device: torch.device | str | int, depth: int = 1) -> Prefetched:
    """`for batch in flatout.prefetch(loader, "cuda")`: batches are on the device when they are handed over."""
    return Prefetched(loader, device, depth)
