"""A training on batches that are given again, within the test's own process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, dataloader

from flatout.attach.patching import Patches
from flatout.attach.trial.replay import Replay

KEPT, BATCHES = 3, 6


class Numbers(Dataset[Tensor]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(float(index))


@pytest.fixture
def replayed() -> Iterator[Replay]:
    patches, replay = Patches("__flatout_test_replay__"), Replay(torch, KEPT)
    replay.install(dataloader, patches)
    yield replay
    patches.restore()


def _epoch(loader: DataLoader[Tensor]) -> list[float]:
    weight, taken = torch.ones((), requires_grad=True), []
    for batch in loader:
        (weight * batch.sum()).backward()
        taken.append(batch.item())
    return taken


@pytest.mark.parametrize("workers", [0, 1])
def test_the_first_batches_come_again_as_often_as_an_epoch_has_batches(replayed: Replay, workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=1, num_workers=workers)

    first, second = _epoch(loader), _epoch(loader)

    # The training is known by its first backward, which comes after the first batch was asked for.
    assert len(first) == len(second) == BATCHES
    assert set(second) < set(range(BATCHES)) and len(set(second)) == KEPT


def test_an_epoch_of_what_is_kept_starts_no_workers(replayed: Replay) -> None:
    loader = DataLoader(Numbers(), batch_size=1, num_workers=1)
    _epoch(loader)
    before = set(multiprocessing.active_children())

    iterator = iter(loader)
    next(iterator)

    assert not set(multiprocessing.active_children()) - before
    assert iterator._num_yielded == 1


def test_whoever_evaluates_from_the_same_loader_gets_its_own_batches(replayed: Replay) -> None:
    loader = DataLoader(Numbers(), batch_size=1, num_workers=1)
    _epoch(loader)

    iterator = iter(loader)
    with torch.no_grad():
        taken = [batch.item() for batch in iterator]

    assert taken == list(range(BATCHES))
