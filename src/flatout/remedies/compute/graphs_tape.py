"""Records what a call launches on a GPU as a CUDA graph, and leaves everything as it was where that fails.

Only this thread is held to the rules of a capture: a thread that pins batches beside it goes on. A capture that breaks
leaves torch's allocator and its random generator within a capture; both are brought out of it, or the training's next
dropout would fail.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, Protocol

_WAITS = "synchronizing CUDA operation"
# Broken ones are kept: torch's allocators may still ask them whose memory it is.
_broken: list[Any] = []


class NotRecorded(Exception):
    """The call cannot be recorded; the words say why."""


class Tapes(Protocol):
    """Records calls on one device."""

    def aside(self) -> Any:
        """A context beside the script's own work, for trying calls out. Raises NotRecorded if the host waited in it."""

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """The call's result in memory of its own, and what does its work again, into the same memory."""

    def random_state(self) -> Any: ...

    def set_random_state(self, state: Any) -> None: ...

    def held_bytes(self) -> int:
        """By tensors that live now."""

    def room_bytes(self) -> int: ...

    def place(self) -> object:
        """Where work is launched just now: replays keep to one stream."""


class CudaTapes:
    """On a GPU."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def aside(self) -> Any:
        return _Aside(self._torch.cuda, self._device, self._stream)

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        # Garbage with device memory in it must not be collected in the middle of a capture.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            cuda.synchronize(self._device)
            # What was tried out has left its memory with another stream.
            cuda.empty_cache()
            with cuda.stream(self._stream):
                result = self._capture(graph, call)
            cuda.synchronize(self._device)
        finally:
            if collects:
                gc.enable()
        return result, graph.replay

    def _capture(self, graph: Any, call: Callable[[], Any]) -> Any:
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            result = call()
            graph.capture_end()
        except BaseException:
            self._recover(graph)
            raise
        return result

    def _recover(self, graph: Any) -> None:
        _broken.append(graph)
        for mend in (graph.capture_end, self._end_allocation, graph.reset, self._capture_something):
            try:
                mend()  # the first raises where the capture is broken, the second where it is not
            except Exception:
                continue
        self._torch.cuda.empty_cache()

    def _end_allocation(self) -> None:
        """A capture that did not end keeps the allocator at its pool, and the pool's memory."""
        bindings, index = self._torch._C, self._device.index
        name = "_cuda_endAllocateToPool"
        end = getattr(bindings, name, None) or bindings._cuda_endAllocateCurrentStreamToPool
        end(index, self._pool)
        bindings._cuda_releasePool(index, self._pool)

    def _capture_something(self) -> None:
        """The generator believes it is in a capture until one has ended well."""
        torch = self._torch
        torch.cuda.synchronize(self._device)
        number = torch.zeros(1, device=self._device)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        number.add_(1)
        graph.capture_end()

    def random_state(self) -> Any:
        return self._torch.cuda._get_rng_state_offset(self._device)

    def set_random_state(self, state: Any) -> None:
        self._torch.cuda._set_rng_state_offset(state, self._device)

    def held_bytes(self) -> int:
        return int(self._torch.cuda.memory_allocated(self._device))

    def room_bytes(self) -> int:
        cuda = self._torch.cuda
        free, _ = cuda.mem_get_info(self._device)
        return int(free + cuda.memory_reserved(self._device) - cuda.memory_allocated(self._device))

    def place(self) -> object:
        return self._torch.cuda.current_stream(self._device).cuda_stream


class _Aside:
    """Work on another stream, with an eye on waits.

    No generator: remedies that look who enters a stream would take contextlib's frame for the script's.
    """

    def __init__(self, cuda: Any, device: Any, stream: Any) -> None:
        self._cuda = cuda
        self._device = device
        self._stream = stream
        self._within = cuda.stream(stream)
        self._warnings = warnings.catch_warnings(record=True)

    def __enter__(self) -> None:
        cuda = self._cuda
        self._before = cuda.get_sync_debug_mode()
        self._current = cuda.current_stream(self._device)
        self._stream.wait_stream(self._current)
        self._seen = self._warnings.__enter__()
        warnings.simplefilter("always")
        # It warns rather than fails: other threads may well wait.
        cuda.set_sync_debug_mode("warn")
        self._within.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._within.__exit__(kind, error, trace)
        self._cuda.set_sync_debug_mode(self._before)
        self._warnings.__exit__(kind, error, trace)
        self._current.wait_stream(self._stream)
        if error is None and any(_WAITS in str(one.message) for one in self._seen or ()):
            raise NotRecorded("the host waits for the device within it")
