"""Threads that are ready to run but do not, and the processes that run instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flatout.telemetry.host import HostSampler
from flatout.telemetry.processes import ProcessSampler
from flatout.telemetry.scheduling import NeighbourSampler, ThreadSampler

_TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A /proc of our own, with a clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def thread(self, pid: int, tid: int, run_s: float, delay_s: float) -> None:
        folder = self.root / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{int(run_s * 1e9)} {int(delay_s * 1e9)} 7\n")

    def process(self, pid: int, cpu_s: float, *, ppid: int = 1, began: int = 5, **more: Any) -> None:
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = ["0"] * 45
        fields[0], fields[1], fields[19] = str(more.get("state", "R")), str(ppid), str(began)
        fields[11], fields[13] = str(int(cpu_s * _TICKS)), str(int(more.get("children_s", 0) * _TICKS))
        (folder / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_threads_of_a_training_process_are_filed_if_they_run(proc: Proc) -> None:
    sampler = ThreadSampler(lambda: {10: "main", 20: "worker"}, proc.root, proc.clock)
    for tid, run_s in ((10, 1.0), (11, 1.0), (12, 1.0)):
        proc.thread(10, tid, run_s, 0.5)
    proc.thread(20, 20, 3.0, 0.0)
    proc.thread(20, 21, 3.0, 0.0)
    first = sampler.sample()
    proc.now_s += 1.0
    proc.thread(10, 10, 1.4, 1.1)
    proc.thread(10, 11, 1.9, 0.5)

    second = sampler.sample()

    assert {sample.tid for sample in first} == {10, 11, 12, 20}, "a worker's first thread does its work"
    assert [(sample.pid, sample.tid) for sample in second] == [(10, 10), (10, 11), (20, 20)]
    assert (second[0].run_s, second[0].delay_s) == pytest.approx((1.4, 1.1))
    assert sampler.delay_share == pytest.approx(0.6)


def test_a_kernel_that_does_not_count_gives_no_sample(proc: Proc) -> None:
    proc.thread(10, 10, 0.0, 0.0)

    assert ThreadSampler(lambda: {10: "main", 30: "other"}, proc.root, proc.clock).sample() == ()


def test_neighbours_are_looked_for_only_while_threads_wait(proc: Proc) -> None:
    sampler = NeighbourSampler(lambda: {10}, proc.root, proc.clock)
    assert sampler.is_due(None), "there has to be something to compare with"
    sampler.sample()
    proc.now_s += 10.0

    assert not sampler.is_due(None) and not sampler.is_due(0.001)
    assert sampler.is_due(0.5)
    sampler.sample()
    assert not sampler.is_due(0.5), "not again at once"


def test_the_busiest_neighbours_are_named_with_their_cores(proc: Proc) -> None:
    allowed = {40: {0}, 41: {0, 1, 2, 3}, 42: {3}}
    sampler = NeighbourSampler(lambda: {10}, proc.root, proc.clock, lambda pid: allowed.get(pid, set()))
    sampler.cores = {0, 1}
    for pid in (10, 40, 41, 42, 43):
        proc.process(pid, 50.0)
    assert sampler.sample() == ()
    proc.now_s += 10.0
    proc.process(10, 60.0)
    proc.process(40, 58.0)
    proc.process(41, 56.0)
    proc.process(42, 60.0)
    proc.process(43, 2.0, began=99)
    proc.process(44, 1.0)

    found = sampler.sample()

    cores = {sample.pid: sample.cores for sample in found}
    assert cores == pytest.approx({40: 0.8, 41: 0.3, 43: 0.2, 44: 0.1}), "neither our own nor one that runs elsewhere"
    assert [sample.pid for sample in found] == [40, 41, 43, 44]
    assert sampler.names[40] == "a (b) c" and all(sample.span_s == 10.0 for sample in found)


def test_the_time_of_a_tree_has_what_began_and_ended_between_two_samples(proc: Proc) -> None:
    sampler = ProcessSampler(10, proc.root, proc.clock)
    proc.process(10, 5.0)
    sampler.sample()
    proc.now_s += 2.0
    proc.process(10, 6.0)
    proc.process(11, 3.0, ppid=10)
    sampler.sample()
    assert sampler.cpu_s == pytest.approx(4.0)
    # A worker ends and is waited for, and so is a child that nobody saw.
    proc.now_s += 2.0
    proc.process(11, 3.0, ppid=10, state="Z")
    sampler.sample()
    proc.now_s += 2.0
    proc.process(10, 6.0, children_s=3.5 + 2.0)

    sampler.sample()

    assert sampler.cpu_s == pytest.approx(6.5), "what was seen of a child does not count twice"


def test_busy_and_stolen_seconds_are_of_the_cores_asked_for(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 9 0 0 9 0 0 0 9\ncpu0 100 50 50 900 10 0 0 20\ncpu1 7 0 0 9 0 0 0 0\n")
    host = HostSampler(tmp_path)
    host.sample()

    assert host.counted_s({0}) == pytest.approx((200 / _TICKS, 20 / _TICKS))
    assert host.counted_s({0, 5}) is None and host.counted_s(()) is None
