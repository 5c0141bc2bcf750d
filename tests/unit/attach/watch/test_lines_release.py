"""What a thread works on lives no longer for having been looked at: no cycle waits for garbage to be collected."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from flatout.attach.watch.fetch import WorkerSampler
from flatout.attach.watch.lines import LineSampler, Sampler


class _Training:
    is_resting, inside, pending_becomes, ended = False, 0, 0, 0
    owner = 0


class _Nowhere:
    def put(self, place: int, body: bytes) -> int:
        return 0

    def text(self, what: str, value: object) -> None:
        pass


class _Batch:
    pass


def _fetch() -> None:
    pass


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _line_sampler() -> Sampler:
    training = _Training()
    training.owner = threading.get_ident()
    return LineSampler(training, training, _Nowhere, hz=100.0)  # type: ignore[arg-type]


def _worker_sampler() -> Sampler:
    code = _fetch.__code__
    return WorkerSampler(code, code, _Nowhere, hz=100.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [_line_sampler, _worker_sampler])
def test_a_look_keeps_nothing(make: Callable[[], Sampler]) -> None:
    known: list[weakref.ref[_Batch]] = []

    def train() -> None:
        batch = _Batch()
        known.append(weakref.ref(batch))
        sampler = make()
        looking = threading.Thread(target=lambda: [sampler._look(0.01) for _ in range(3)])
        looking.start()
        looking.join()
        del looking

    train()

    assert known[0]() is None
