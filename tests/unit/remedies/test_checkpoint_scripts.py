"""Odd but real ways to save, and to look at what was saved, while another process writes it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from flatout.remedies.checkpoint import saver as checkpoint_saver
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied
from tests.unit.remedies.saving import saver_in_force, stop_writer

_CONTINUES_AFTER_S = 0.2


@pytest.fixture
def taken_over() -> Iterator[types.ModuleType]:
    """A module of the script's that took functions over by name, before torch was there."""
    module = types.ModuleType("takes_names_over")
    exec("from io import open\nfrom os import listdir, rename", vars(module))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def site(taken_over: types.ModuleType) -> Iterator[Site]:
    with applied("checkpoint.async") as site:
        yield site


@pytest.fixture
def slow_disk(site: Site, tmp_path: Path) -> Iterator[None]:
    """The writer does not move at first."""
    torch.save({}, tmp_path / "first.pt")
    writer = stop_writer()
    timer = threading.Timer(_CONTINUES_AFTER_S, os.kill, (writer, signal.SIGCONT))
    timer.start()
    yield
    timer.join()


def _size(module: Any, path: str) -> int:
    with module.open(path, "rb") as file:
        return len(file.read())


@pytest.mark.parametrize(
    "look",
    [
        lambda module, path: os.path.basename(path) in module.listdir(os.path.dirname(path)),
        lambda module, path: _size(module, path) > 0,
        lambda module, path: module.rename(path, f"{path}.old") is None and os.path.exists(f"{path}.old"),
        lambda module, path: os.chown(path, os.geteuid(), -1) is None,
        lambda module, path: os.listxattr(path) is not None,
    ],
    ids=["listdir by name", "open by name", "rename by name", "chown", "listxattr"],
)
def test_a_look_waits(
    look: Callable[[Any, str], bool], slow_disk: None, taken_over: types.ModuleType, tmp_path: Path
) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")

    assert look(taken_over, str(tmp_path / "a.pt"))


def test_names_that_were_taken_over_are_as_before_afterwards(taken_over: types.ModuleType, tmp_path: Path) -> None:
    before = dict(vars(taken_over))

    with applied("checkpoint.async"):
        torch.save({}, tmp_path / "a.pt")
        during = dict(vars(taken_over))

    assert during["listdir"] is not before["listdir"]
    assert vars(taken_over) == before


def test_torchs_save_by_its_other_name_keeps_the_order(slow_disk: None, tmp_path: Path) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")
    torch.serialization.save({"step": 2}, tmp_path / "a.pt")

    assert torch.load(tmp_path / "a.pt") == {"step": 2}


def test_threads_may_save_at_the_same_time(site: Site, tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def save(name: str) -> None:
        try:
            for step in range(10):
                torch.save({"step": step, "values": torch.randn(50_000)}, tmp_path / name)
        except BaseException as error:
            failed.append(error)

    names = ["a.pt", "b.pt", "c.pt"]
    threads = [threading.Thread(target=save, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    assert [torch.load(tmp_path / name)["step"] for name in names] == [9, 9, 9]
    for name in names:
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert archive.testzip() is None


def test_what_a_forked_child_saves_comes_after_what_is_under_way(slow_disk: None, tmp_path: Path) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")
    child = multiprocessing.get_context("fork").Process(target=torch.save, args=({"step": 2}, tmp_path / "a.pt"))
    child.start()
    child.join()

    assert torch.load(tmp_path / "a.pt") == {"step": 2}


def test_a_process_that_is_started_anew_finds_the_file(slow_disk: None, tmp_path: Path) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")
    child = multiprocessing.get_context("spawn").Process(target=os.path.exists, args=(str(tmp_path / "a.pt"),))
    child.start()
    under_way = len(saver_in_force().pending)
    child.join()

    assert under_way == 0


def test_who_has_the_file_open_sees_the_new_bytes(site: Site, tmp_path: Path) -> None:
    torch.save({"step": 1, "values": torch.zeros(1000)}, tmp_path / "a.pt")

    with open(tmp_path / "a.pt", "rb") as file:
        torch.save({"step": 2}, tmp_path / "a.pt")
        seen = file.read()

    assert seen == (tmp_path / "a.pt").read_bytes()


# The memory that a checkpoint goes through on its way to the disk.


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
