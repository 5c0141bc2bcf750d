"""Recording on a device: what it asks of torch, and that a capture that breaks leaves nothing behind."""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.remedies.compute.graph_passes import CudaTapes, NotRecorded

DEVICE = SimpleNamespace(type="cuda", index=0)


class Device:
    """Torch's CUDA as far as it is used here, with what a broken capture does to it."""

    def __init__(self) -> None:
        self.current: Any = "default stream"
        self.debug_mode: Any = 0
        self.allocates_to: Any = None
        self.pools_held = 0
        self.generator_captures = False
        self.is_broken = False
        self.launched: list[str] = []
        device = self

        class Stream:
            def __init__(self, on: Any) -> None:
                self.waited_for: list[Any] = []

            def wait_stream(self, other: Any) -> None:
                self.waited_for.append(other)

        class Current(Stream):
            cuda_stream = 7

        class Entered:
            def __init__(self, stream: Any) -> None:
                self.stream = stream

            def __enter__(self) -> None:
                self.before, device.current = device.current, self.stream

            def __exit__(self, *error: Any) -> None:
                device.current = self.before

        class Graph:
            def capture_begin(self, pool: Any = "own", capture_error_mode: str = "global") -> None:
                assert device.allocates_to is None and device.current != "default stream"
                assert capture_error_mode == "thread_local"
                device.allocates_to, device.generator_captures = pool, True
                device.pools_held += 1

            def capture_end(self) -> None:
                if device.is_broken:
                    device.is_broken = False
                    raise RuntimeError("operation failed due to a previous error during capture")
                assert device.allocates_to is not None, "not capturing"
                device.allocates_to, device.generator_captures = None, False

            def replay(self) -> None:
                device.launched.append("graph")

            def reset(self) -> None:
                pass

        def end(index: int, pool: Any) -> None:
            if device.allocates_to != pool:
                raise RuntimeError("not currently recording to this pool")
            device.allocates_to = None

        def release(index: int, pool: Any) -> None:
            device.pools_held -= 1

        self.cuda = SimpleNamespace(
            graph_pool_handle=lambda: (0, 1),
            Stream=Stream,
            CUDAGraph=Graph,
            stream=Entered,
            current_stream=lambda on: Current(on),
            synchronize=lambda on: None,
            empty_cache=lambda: None,
            get_sync_debug_mode=lambda: self.debug_mode,
            set_sync_debug_mode=self._set_mode,
            memory_allocated=lambda on: 10,
            memory_reserved=lambda on: 30,
            mem_get_info=lambda on: (100, 1000),
        )
        self._C = SimpleNamespace(_cuda_endAllocateToPool=end, _cuda_releasePool=release)

    def _set_mode(self, mode: Any) -> None:
        self.debug_mode = mode

    def zeros(self, *size: Any, device: Any) -> Any:
        return SimpleNamespace(add_=lambda number: None)


def test_what_is_recorded_is_replayed() -> None:
    device = Device()
    tapes = CudaTapes(device, DEVICE)

    result, replay = tapes.record(lambda: device.current)
    replay()

    assert result is not None and device.current == "default stream"
    assert device.launched == ["graph"] and gc.isenabled()


def test_a_broken_capture_leaves_nothing_behind() -> None:
    device = Device()
    tapes = CudaTapes(device, DEVICE)

    def breaks() -> None:
        device.is_broken = True
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        tapes.record(breaks)

    assert device.current == "default stream" and gc.isenabled()
    assert device.allocates_to is None and not device.generator_captures
    # The one that is left is of the capture that was made to end well.
    assert device.pools_held == 1


def test_an_error_of_the_scripts_own_ends_the_capture() -> None:
    device = Device()

    with pytest.raises(ZeroDivisionError):
        CudaTapes(device, DEVICE).record(lambda: 1 / 0)

    assert device.current == "default stream"
    assert device.allocates_to is None and not device.generator_captures


def test_waits_are_seen_aside_and_the_mode_is_put_back() -> None:
    device = Device()
    tapes = CudaTapes(device, DEVICE)
    device.debug_mode = 1

    with pytest.raises(NotRecorded, match="the host waits"), tapes.aside():
        assert device.debug_mode == "warn" and device.current != "default stream"
        warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=1)
    assert (device.debug_mode, device.current) == (1, "default stream")

    with tapes.aside():
        warnings.warn("something else", UserWarning, stacklevel=1)


def test_room_is_what_is_free_and_what_torch_keeps_for_itself() -> None:
    tapes = CudaTapes(Device(), DEVICE)

    assert (tapes.room_bytes(), tapes.held_bytes(), tapes.place()) == (120, 10, 7)
