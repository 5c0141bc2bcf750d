"""The memory that a checkpoint goes through on its way to the disk."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from flatout.remedies.checkpoint import saver as checkpoint_saver
from tests.unit.remedies.applied import applied

LARGE = 2_000_000


@pytest.mark.parametrize(("room", "may_start"), [(1 << 40, True), (1 << 27, True), (1 << 27, False)])
def test_memory_is_used_again_where_it_is_little_and_freed_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, may_start: bool
) -> None:
    if not may_start:
        monkeypatch.setattr(threading, "Thread", _no_more_threads)
    monkeypatch.setattr(checkpoint_saver, "free_bytes", lambda: room)
    made: list[int] = []
    make = os.memfd_create
    monkeypatch.setattr(os, "memfd_create", lambda *args: made.append(make(*args)) or made[-1])
    sizes = []

    with applied("checkpoint.async"):
        for count in (LARGE * 2, LARGE, LARGE * 2):
            torch.save({"weights": torch.full((count,), float(count))}, tmp_path / "a.pt")
            loaded = torch.load(tmp_path / "a.pt")["weights"]
            assert len(loaded) == count and bool((loaded == count).all())
            sizes.append((tmp_path / "a.pt").stat().st_size)

    assert sizes[0] == sizes[2] > sizes[1]
    assert len(made) == (1 if room == 1 << 40 else 3)
    deadline = time.monotonic() + 10
    while any(_is_open(memory) for memory in made) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_is_open(memory) for memory in made)


def _no_more_threads(*_: object, **__: object) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def _is_open(descriptor: int) -> bool:
    try:
        return "flatout-checkpoint" in os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False
