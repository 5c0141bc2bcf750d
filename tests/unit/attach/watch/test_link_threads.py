"""Products that are timed with the threads as they are, and with all there could be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flatout.attach.watch.link_threads import idle_processors, time_threads


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_both_are_timed_and_the_threads_put_back() -> None:
    state = torch.get_rng_state()

    told: Any = time_threads(torch, [1e7, 2e9])

    assert (told["threads"], told["processors"]) == (1, 2)
    assert all(ms > 0 for ms in told["ms"]) and len(told["ms"]) == 2
    assert torch.get_num_threads() == 1
    assert bool((torch.get_rng_state() == state).all())


def test_small_operations_are_not_timed() -> None:
    assert time_threads(torch, [1e3]) is None


def test_ranks_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle_processors(torch) == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")

    assert idle_processors(torch) == 0
    assert time_threads(torch, [1e7]) is None
