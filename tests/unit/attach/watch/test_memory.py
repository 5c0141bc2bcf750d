"""Memory by step: what is read, how much of it is kept, and when it is written."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from flatout.attach.recorder import Output
from flatout.attach.watch.memory import MemoryWatch
from tests.unit.attach.contexts import make_context

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm")


class Texts(Output):
    def __init__(self) -> None:
        self.written: list[Any] = []

    def text(self, what: str, value: object) -> None:
        assert what == "memory"
        self.written.append(value)


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
def watch(texts: Texts) -> Iterator[MemoryWatch]:
    watch = MemoryWatch(make_context(lambda: texts))
    watch.at_begin()
    yield watch
    watch.at_stop()


def test_what_a_step_keeps_is_seen(watch: MemoryWatch, texts: Texts) -> None:
    kept = []
    for step in range(20):
        # The system's own pages: the allocator of a process that ran long may have some that are resident already.
        kept.append(mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(b"x" * (4 << 20))
        watch.at_step_end((), step, 10.0 + step)
    watch.at_finish()

    told = texts.written[-1]
    assert told["steps"] == tuple(range(20))
    assert told["bytes"][-1] - told["bytes"][0] == pytest.approx(19 * (4 << 20), rel=0.2)


def test_a_long_run_keeps_few_points_from_all_of_it(watch: MemoryWatch, texts: Texts) -> None:
    for step in range(20_000):
        watch.at_step_end((), step, 10.0 + 0.01 * step)
    watch.at_finish()

    told = texts.written[-1]
    assert 100 <= len(told["steps"]) <= 256
    assert told["steps"][0] == 0 and told["steps"][-1] > 19_000
    assert len(texts.written) < 20


def test_a_forked_child_begins_anew(watch: MemoryWatch, texts: Texts) -> None:
    watch.at_step_end((), 1, 10.0)
    watch.at_fork()
    watch.at_step_end((), 7, 10.0)
    watch.at_finish()

    assert texts.written[-1]["steps"] == (7,)
