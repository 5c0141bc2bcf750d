"""When memory runs short, workers that the script did not ask for are renewed, and then fewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from flatout.feed import feeding
from flatout.feed.feeding import Feed
from flatout.feed.host_memory import Memory
from flatout.feed.shortage import Relief, Shortage


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.looks = 0
        self.share = 1.0

    def __call__(self) -> float:
        return self.now_s

    def free_share(self) -> float:
        self.looks += 1
        return self.share

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
    shortage = Shortage(2, clock.free_share, clock)

    assert clock.go_on(shortage, 60.0, 8) == []
    assert clock.looks <= 13


def test_half_of_the_workers_are_renewed_and_where_that_does_not_help_there_are_fewer(clock: Clock) -> None:
    shortage = Shortage(2, clock.free_share, clock)
    clock.share = 0.1

    assert clock.go_on(shortage, 4.0, 8) == [(0.0, Relief(8, renewed=4))]
    assert clock.go_on(shortage, 4.0, 8)[0][1] == Relief(4)
    assert clock.go_on(shortage, 4.0, 4)[0][1] == Relief(2)
    assert clock.go_on(shortage, 60.0, 2) == []


def test_a_renewal_that_helps_for_a_while_is_done_again(clock: Clock) -> None:
    shortage = Shortage(2, clock.free_share, clock)
    found = []
    for _ in range(4):
        clock.share = 0.1
        found += clock.go_on(shortage, 3.0, 8)
        clock.share = 0.2
        found += clock.go_on(shortage, 17.0, 8)

    assert [relief for _, relief in found] == 4 * [Relief(8, renewed=4)]


def test_what_the_script_asked_for_stays_as_it_is(clock: Clock) -> None:
    clock.share = 0.01

    assert clock.go_on(Shortage(4, clock.free_share, clock), 30.0, 4) == []
    assert clock.go_on(Shortage(0, clock.free_share, clock), 30.0, 1) == []
    assert clock.looks == 0


class Hoards(Dataset[torch.Tensor]):
    """Keeps what it has read, in each worker anew."""

    BYTES = 1 << 20

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> torch.Tensor:
        self.kept.setdefault(index, torch.full((self.BYTES // 4,), float(index)))
        return torch.tensor([index, os.getpid()])


def _taken_bytes(pids: set[int]) -> int:
    """Anonymous memory of these processes that is their own."""
    taken = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        taken += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))
    return taken


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A machine with 600 MiB for workers; the shares that were left at each look."""
    seen: list[float] = []
    limit = 600 << 20

    def share() -> float:
        iterator = feeding_iterator[0]
        taken = _taken_bytes({process.pid for process in iterator._workers})
        seen.append(Memory(limit, limit - taken).free_share)
        return seen[-1]

    batches = iter(range(10**6))  # each takes a quarter of a second
    monkeypatch.setattr(feeding, "Shortage", lambda asked_for: Shortage(asked_for, share, lambda: next(batches) / 4))
    yield seen


feeding_iterator: list[object] = []


def test_a_dataset_that_hoards_in_every_worker_stays_within_memory(limited: list[float]) -> None:
    loader = TorchLoader(Hoards(), batch_size=1, num_workers=6)
    feed, told = Feed(), []
    feed.known_workers, feed.epoch = 1, 0
    feed.on_short = told.append
    iterator = feed.make_iterator(loader)
    feeding_iterator[:] = [iterator]

    batches = list(iterator)

    assert [int(batch[0][0]) for batch in batches] == list(range(1600))
    # All that is read would take 1,600 MiB in one worker or six.
    assert min(limited) > 0.0 and len(told) > 1
    assert len({int(batch[0][1]) for batch in batches}) > 6
    assert "workers were renewed" in told[0]
