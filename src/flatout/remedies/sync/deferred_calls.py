"""Calls of loggers that wait for values still on their way from the device, in their order."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

# A value that takes longer than this many steps is waited for: what is logged should not be old.
_MOST_STEPS_LATE = 16
_PLAIN = (int, float, str, bool, type(None))


@dataclass(frozen=True, slots=True)
class _Call:
    logger: Any
    original: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # When all its values are on the host; None if none is under way.
    arrived: Any
    step: int


class DeferredCalls:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._waiting: deque[_Call] = deque()
        self._lock = threading.RLock()

    def takes(
        self, logger: Any, name: str, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], step: int
    ) -> bool:
        """Whether this call is ours now. Not if it holds anything but numbers, words and results on the device."""
        with self._lock:
            found = _device_scalars((args, kwargs))
            queued = any(call.logger is logger for call in self._waiting)
            if found is None or not (found or queued):
                return False
            if len({str(tensor.device) for tensor in found}) > 1 or self._torch.cuda.is_current_stream_capturing():
                return False
            if name.startswith("add_scalar"):
                kwargs = _with_time_of_day(name, args, kwargs)
            copies = {id(tensor): self._to_host(tensor) for tensor in found}
            arrived = None
            if found:
                arrived = self._torch.cuda.Event()
                arrived.record(self._torch.cuda.current_stream(found[0].device))
            ours: tuple[tuple[Any, ...], dict[str, Any]] = _replaced((args, kwargs), copies)
            self._waiting.append(_Call(logger, original, *ours, arrived, step))
            return True

    def _to_host(self, tensor: Any) -> Any:
        """Pinned, or the copy would wait after all."""
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor.detach(), non_blocking=True)

    def hand_on(self, step: int) -> None:
        """Make the calls whose values are there."""
        with self._lock:
            while self._waiting:
                first = self._waiting[0]
                if first.step >= step or not (_is_there(first) or step - first.step > _MOST_STEPS_LATE):
                    return
                self._make_first()

    def hand_on_all(self, logger: Any = None) -> None:
        """Make all calls, or all that keep one of this logger from being the next."""
        with self._lock:
            while self._waiting and (logger is None or any(call.logger is logger for call in self._waiting)):
                self._make_first()

    def _make_first(self) -> None:
        call = self._waiting.popleft()
        if call.arrived is not None:
            call.arrived.synchronize()
        call.original(call.logger, *call.args, **call.kwargs)


def _is_there(call: _Call) -> bool:
    return call.arrived is None or bool(call.arrived.query())


def _device_scalars(value: Any) -> list[Any] | None:
    """The results on the device in it; None if there is something that could change before the call is made."""
    if isinstance(value, _PLAIN):
        return []
    if getattr(value, "is_cuda", False) is True:
        return [value] if value.numel() == 1 else None
    if type(value) in (tuple, list, dict):
        found = [_device_scalars(part) for part in (value.values() if isinstance(value, dict) else value)]
        return None if any(part is None for part in found) else [one for part in found for one in part or ()]
    return None


def _replaced(value: Any, copies: dict[int, Any]) -> Any:
    """The same with the copies in place of what is on the device, and no list or dict shared with the script."""
    if isinstance(value, dict):
        return {name: _replaced(part, copies) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(part, copies) for part in value)
    return copies.get(id(value), value)


def _with_time_of_day(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`walltime` is the fourth argument of both; left out, it would be the time of the late call."""
    if len(args) > 3 or kwargs.get("walltime") is not None:
        return kwargs
    return {**kwargs, "walltime": time.time()}
