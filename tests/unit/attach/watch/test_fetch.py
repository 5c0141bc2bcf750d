"""Which stage and which frame of a stack a worker's time is put down to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from types import FrameType, SimpleNamespace
from typing import Any

from flatout.attach.recorder import Output
from flatout.attach.watch.fetch import WorkerSampler, _stage_of_feeder, handed_out_at
from flatout.attach.wire import COLLATE, HANDOVER, ORDER, ROOM, SAMPLES

Found = tuple[int, FrameType] | None


def fetch(call: Callable[[], Found]) -> Found:
    return call()


def collate(call: Callable[[], Found]) -> Found:
    return call()


def sampler() -> WorkerSampler:
    return WorkerSampler(fetch.__code__, collate.__code__, Output, 1.0)


def of_the_user() -> Found:
    return sampler()._find_stage(sys._getframe())


def loop_of(module: str, name: str, called: dict[str, str]) -> Any:
    """A loop as that of a worker, which calls functions of these names one within the other."""
    source = "".join(f"def {inner}(call): return {within}(call)\n" for inner, within in called.items())
    space: dict[str, Any] = {"__name__": module, "look": lambda call: call()}
    exec(f"{source}def {name}(call): return {next(iter(called), 'look')}(call)\n", space)
    return space[name]


def test_the_innermost_frame_of_the_user_in_a_fetch_is_found() -> None:
    found = fetch(of_the_user)

    assert found is not None and found[0] == SAMPLES and found[1].f_code is of_the_user.__code__


def test_collating_is_told_apart() -> None:
    found = fetch(lambda: collate(of_the_user))

    assert found is not None and found[0] == COLLATE


def test_outside_of_fetches_and_loops_there_is_nothing() -> None:
    assert of_the_user() is None
    assert sampler()._find_stage(None) is None


def test_what_a_loop_has_called_tells_the_stage() -> None:
    torchs, ours = "torch.utils.data._utils.worker", "flatout.feed.worker"
    for module, loop, called, stage in (
        (torchs, "_worker_loop", {"get": "look"}, ORDER),
        (torchs, "_worker_loop", {"put": "look"}, HANDOVER),
        (torchs, "_worker_loop", {}, HANDOVER),
        (ours, "serve", {"_next_task": "look"}, ORDER),
        (ours, "serve", {"_work": "_finish", "_finish": "_pack", "_pack": "look"}, HANDOVER),
        (ours, "serve", {"_work": "_finish", "_finish": "__call__", "__call__": "look"}, COLLATE),
        (ours, "serve", {"_work": "_fetch", "_fetch": "look"}, SAMPLES),
    ):
        found = loop_of(module, loop, called)(of_the_user)
        assert found is not None and found[0] == stage, (module, called)


def test_a_worker_without_an_order_may_be_handing_over() -> None:
    queue = get_context("fork").Queue()
    try:
        assert _stage_of_feeder(sys._current_frames().values()) == ORDER
        # More than a pipe holds, and nobody reads.
        queue.put(b"x" * (1 << 20))
        deadline = threading.Event()
        for _ in range(400):
            if _stage_of_feeder(sys._current_frames().values()) == ROOM:
                break
            deadline.wait(0.01)
        assert _stage_of_feeder(sys._current_frames().values()) == ROOM
        assert queue.get() == b"x" * (1 << 20)
    finally:
        queue.close()
        queue.join_thread()


class Streamed:
    def __iter__(self) -> Iterator[int]:
        yield from self.inner()

    def inner(self) -> Iterator[int]:
        yield 1
        yield 2


class Indexed:
    def __getitem__(self, index: int) -> int:
        self.last = index
        return index + 1


def test_a_sample_is_handed_out_where_the_users_innermost_generator_stands() -> None:
    dataset = Streamed()
    samples = iter(dataset)
    first = Streamed.inner.__code__.co_firstlineno

    for number in (1, 2):
        assert next(samples) == number
        at = handed_out_at(SimpleNamespace(dataset=dataset, dataset_iter=samples))
        assert at == (__file__, first + number)


def test_a_sample_is_handed_out_at_the_end_of_getitem() -> None:
    first = Indexed.__getitem__.__code__.co_firstlineno

    assert handed_out_at(SimpleNamespace(dataset=Indexed())) == (__file__, first + 2)


def test_nobody_knows_where_other_iterators_hand_out() -> None:
    assert handed_out_at(SimpleNamespace(dataset=Indexed(), dataset_iter=map(abs, [1]))) is None
    assert handed_out_at(SimpleNamespace(dataset=[1, 2])) is None
