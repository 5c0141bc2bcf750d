"""How much memory there is, from file trees made like cgroups of both versions."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from flatout.feed import feeding
from flatout.feed.feeding import Feed
from flatout.feed.machine import Memory, Relief, Shortage, free_bytes, memory, processors, workers_allowed
from flatout.words import english
from tests.unit.feed.trees import tree

GB = 10**9


def test_cgroup_v2_counts_file_cache_as_free(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": f"{10 * GB}\n",
            "sys/fs/cgroup/job/memory.current": f"{6 * GB}\n",
            "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GB}\nactive_file {GB}\n",
        },
    )

    assert memory(root).free_bytes == 6 * GB and memory(root).limit_bytes == 10 * GB


def test_cgroup_v1_takes_the_tightest_level(tmp_path: Path) -> None:
    level = "sys/fs/cgroup/memory"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a/b\n0::/\n",
            f"{level}/a/memory.limit_in_bytes": f"{3 * GB}",
            f"{level}/a/memory.usage_in_bytes": f"{2 * GB}",
            f"{level}/a/memory.stat": f"total_inactive_file {GB // 2}\n",
            f"{level}/a/b/memory.limit_in_bytes": "9223372036854771712",
            f"{level}/a/b/memory.usage_in_bytes": f"{GB}",
        },
    )

    assert memory(root).free_bytes == 1.5 * GB


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})

    assert memory(root).free_bytes == 50_000_000 << 10


def test_where_nothing_is_told_nothing_is_short(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None and memory(tmp_path).free_share == 1.0
    assert memory(tree(tmp_path, {})).free_share == 50 / 64


# How many workers a rank may have.


@pytest.mark.parametrize(
    ("allowed", "ranks", "workers"), [(16.0, None, 15), (16.0, "4", 3), (2.0, None, 1), (1.0, "8", 1), (2.5, "", 1)]
)
def test_one_processor_is_left_for_the_training_of_each_rank(allowed: float, ranks: str | None, workers: int) -> None:
    environ = {} if ranks is None else {"LOCAL_WORLD_SIZE": ranks}

    assert workers_allowed(environ, allowed) == workers


def test_never_more_than_this_process_may_run_on() -> None:
    assert 0 < processors() <= len(os.sched_getaffinity(0))


# When memory runs short, workers that the script did not ask for are renewed, and then fewer.


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.looks = 0
        self.share = 1.0
        self.limit_bytes = 10**9

    def __call__(self) -> float:
        return self.now_s

    def memory(self) -> Memory:
        self.looks += 1
        return Memory(self.limit_bytes, int(self.share * self.limit_bytes))

    def go_on(self, shortage: Shortage, seconds: float, workers: int) -> list[tuple[float, Relief]]:
        """What it asks for, every tenth of a second, and when."""
        began_s, found = self.now_s, []
        while self.now_s < began_s + seconds:
            relief = shortage.relief(workers)
            if relief is not None:
                found.append((round(self.now_s - began_s, 1), relief))
            self.now_s += 0.1
        return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_with_plenty_nothing_happens_and_hardly_a_look_is_taken(clock: Clock) -> None:
    shortage = Shortage(2, clock.memory, clock)

    assert clock.go_on(shortage, 60.0, 8) == []
    assert clock.looks <= 13


def test_half_of_the_workers_are_renewed_and_where_that_does_not_help_there_are_fewer(clock: Clock) -> None:
    shortage = Shortage(2, clock.memory, clock)
    clock.share = 0.1

    assert clock.go_on(shortage, 4.0, 8) == [(0.0, Relief(8, renewed=4))]
    assert clock.go_on(shortage, 4.0, 8)[0][1] == Relief(4)
    assert clock.go_on(shortage, 4.0, 4)[0][1] == Relief(2)
    assert clock.go_on(shortage, 60.0, 2) == []


def test_a_renewal_that_helps_for_a_while_is_done_again(clock: Clock) -> None:
    shortage = Shortage(2, clock.memory, clock)
    found = []
    for _ in range(4):
        clock.share = 0.1
        found += clock.go_on(shortage, 3.0, 8)
        clock.share = 0.2
        found += clock.go_on(shortage, 17.0, 8)

    assert [relief for _, relief in found] == 4 * [Relief(8, renewed=4)]


def test_a_large_machine_has_enough_with_a_smaller_share(clock: Clock) -> None:
    clock.limit_bytes, clock.share = 2 << 40, 0.05  # 102 GiB

    assert clock.go_on(Shortage(2, clock.memory, clock), 30.0, 8) == []
    clock.share = 0.007
    assert clock.go_on(Shortage(2, clock.memory, clock), 3.0, 8)


def test_where_nothing_is_known_of_memory_nothing_happens(clock: Clock) -> None:
    assert clock.go_on(Shortage(2, lambda: Memory(0, 0), clock), 30.0, 8) == []


def test_what_the_script_asked_for_stays_as_it_is(clock: Clock) -> None:
    clock.share = 0.01

    assert clock.go_on(Shortage(4, clock.memory, clock), 30.0, 4) == []
    assert clock.go_on(Shortage(0, clock.memory, clock), 30.0, 1) == []
    assert clock.looks == 0


class Hoards(Dataset[torch.Tensor]):
    """Keeps what it has read, in each worker anew, and writes down how much that is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: set[int] = set()
        self._file = -1

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> torch.Tensor:
        self._kept.add(index)
        if self._file < 0:
            self._file = os.open(self._folder / str(os.getpid()), os.O_WRONLY | os.O_CREAT)
        os.pwrite(self._file, b"%8d" % len(self._kept), 0)  # in one go, as others read it
        return torch.tensor([index, os.getpid()])

    def kept_by(self, pid: int) -> int:
        file = self._folder / str(pid)
        return int(file.read_text() or 0) if file.exists() else 0


def test_a_dataset_that_hoards_in_every_worker_stays_within_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, room, free = Hoards(tmp_path), 600, []
    feed, told = Feed(), []
    feed.known_workers, feed.epoch, feed.on_short = 1, 0, told.append
    iterator = feed.make_iterator(TorchLoader(dataset, batch_size=1, num_workers=6))

    def left() -> Memory:
        free.append(room - sum(dataset.kept_by(process.pid) for process in iterator._workers))
        return Memory(room, free[-1])

    seconds = (count / 4 for count in range(10**6))  # that pass with each batch
    monkeypatch.setattr(feeding, "Shortage", lambda asked_for: Shortage(asked_for, left, seconds.__next__))

    batches = []
    for batch in iterator:
        batches.append(batch)
        # A batch stands for a quarter of a second, in which a worker that was told to leave has left.
        while sum(not process.is_alive() for process in iterator._workers) < iterator._crew.leaving:
            time.sleep(0.001)

    assert [int(batch[0][0]) for batch in batches] == list(range(1600))
    assert min(free) > 0 and len(told) > 1
    assert len({int(batch[0][1]) for batch in batches}) > 6
    assert english(told[0]) == "the machine's memory ran short: 3 of 6 workers were renewed, without what they had kept"
