"""A file that is saved under a passing name and renamed: the rename waits for nobody, and comes in its order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied
from tests.unit.remedies.saving import saver_in_force, stop_writer

LARGE = 2_000_000


@pytest.fixture
def site() -> Iterator[Site]:
    with applied("checkpoint.async") as site:
        yield site


def _stopped_writer(folder: Path) -> int:
    torch.save({}, folder / "first.pt")
    return stop_writer()


def test_a_rename_does_not_wait_for_the_disk_either(site: Site, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"old")
    writer = _stopped_writer(tmp_path)

    for number in range(3):
        torch.save({"number": number}, tmp_path / "last.pt.part")
        os.replace(tmp_path / "last.pt.part", tmp_path / "last.pt")
    under_way = len(saver_in_force().pending)
    os.kill(writer, signal.SIGCONT)

    assert under_way >= 6
    assert torch.load(tmp_path / "last.pt") == {"number": 2}
    assert not (tmp_path / "last.pt.part").exists()


def test_a_passing_name_is_gone_for_whoever_looks(site: Site, tmp_path: Path) -> None:
    torch.save(torch.ones(LARGE), tmp_path / "part")
    (tmp_path / "part").rename(tmp_path / "last.pt")

    assert not (tmp_path / "part").exists()
    assert (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("target", ["missing/a.pt", "folder"])
def test_a_rename_that_cannot_be_raises_at_the_call(site: Site, tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    torch.save(torch.ones(LARGE), tmp_path / "part")

    with pytest.raises(OSError):
        os.replace(tmp_path / "part", tmp_path / target)

    assert torch.load(tmp_path / "part").sum() == LARGE


def test_a_killed_writer_costs_no_rename(site: Site, tmp_path: Path) -> None:
    writer = _stopped_writer(tmp_path)
    torch.save({"x": 1}, tmp_path / "part")
    os.replace(tmp_path / "part", tmp_path / "last.pt")

    os.kill(writer, signal.SIGKILL)

    assert torch.load(tmp_path / "last.pt") == {"x": 1}
    assert sorted(os.listdir(tmp_path)) == ["first.pt", "last.pt"]


def test_a_forked_child_waits_for_the_rename(site: Site, tmp_path: Path) -> None:
    writer = _stopped_writer(tmp_path)
    torch.save(torch.ones(LARGE), tmp_path / "part")
    os.replace(tmp_path / "part", tmp_path / "last.pt")

    child = os.fork()
    if child == 0:
        os._exit(0 if os.path.exists(tmp_path / "last.pt") else 1)
    os.kill(writer, signal.SIGCONT)

    assert os.waitpid(child, 0)[1] == 0


def test_after_a_failure_the_rest_comes_in_its_order(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    writer = _stopped_writer(tmp_path)
    for number in range(2):
        torch.save({"number": number}, folder / "part")
        os.replace(folder / "part", folder / "last.pt")
    first = min(saver_in_force().pending)
    _removed_by_another_process(saver_in_force().pending[first].temporary)
    os.kill(writer, signal.SIGCONT)

    assert torch.load(folder / "last.pt") == {"number": 1}
    assert os.listdir(folder) == ["last.pt"]


def _removed_by_another_process(path: str) -> None:
    """One that waits for nothing of ours."""
    child = os.fork()
    if child == 0:
        saver_in_force().pending.clear()
        os.unlink(path)
        os._exit(0)
    os.waitpid(child, 0)
