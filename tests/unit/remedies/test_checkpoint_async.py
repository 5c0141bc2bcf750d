"""Checkpoints in the background: what is on disk in the end, and what everybody sees until then."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from flatout.remedies.checkpoint import saver as checkpoint_saver
from flatout.remedies.checkpoint import target_file
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied
from tests.unit.remedies.saving import saver_in_force, stop_writer

LARGE = 2_000_000


@pytest.fixture
def site() -> Iterator[Site]:
    with applied("checkpoint.async") as site:
        yield site


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def test_what_is_loaded_is_the_state_at_the_call(site: Site, tmp_path: Path) -> None:
    weights = torch.arange(float(LARGE))
    state = {"weights": weights, "view": weights[5:9], "step": 3, "list": [1, 2]}
    expected = {"weights": weights.clone(), "view": weights[5:9].clone(), "step": 3, "list": [1, 2]}

    torch.save(state, tmp_path / "a.pt")
    weights.zero_()
    state["list"].append(9)

    loaded = torch.load(tmp_path / "a.pt")
    assert _equal(loaded, expected)
    assert loaded["view"].untyped_storage().data_ptr() == loaded["weights"].untyped_storage().data_ptr()
    assert site.live["saves"] == 1


def test_the_training_does_not_wait_for_the_disk(site: Site, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "first.pt")
    writer = stop_writer()

    torch.save(torch.zeros(LARGE), tmp_path / "a.pt")
    under_way = len(saver_in_force().pending)
    os.kill(writer, signal.SIGCONT)

    assert under_way == 1
    assert torch.load(tmp_path / "a.pt").shape == (LARGE,)


@pytest.mark.parametrize(
    "look",
    [
        lambda path: path.exists(),
        lambda path: os.path.exists(path),
        lambda path: os.stat(path).st_size > LARGE,
        lambda path: path.read_bytes()[:2] == b"PK",
        lambda path: numpy.fromfile(path, "S2", 1)[0] == b"PK",
        lambda path: path.name in os.listdir(path.parent),
        lambda path: [path] == sorted(path.parent.glob("*")),
        lambda path: Path(shutil.copy(path, path.with_name("copy"))).stat().st_size > LARGE,
        lambda path: not os.replace(path, path.with_name("moved")),
        lambda path: not os.remove(path),
        lambda path: not shutil.rmtree(path.parent),
        lambda path: not os.rename(path.parent, path.parent.with_name("elsewhere")),
        lambda path: subprocess.run(["test", "-s", path]).returncode == 0,
        lambda path: os.system(f"test -s '{path}'") == 0,
    ],
)  # fmt: skip
def test_whoever_looks_sees_the_new_file(site: Site, tmp_path: Path, look: Any) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    torch.save(torch.zeros(LARGE), folder / "a.pt")

    assert look(folder / "a.pt")


def test_a_link_to_it_is_looked_at_through(site: Site, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.pt").write_bytes(b"old")
    (tmp_path / "latest.pt").symlink_to("real/a.pt")

    torch.save(torch.ones(LARGE), tmp_path / "latest.pt")

    assert torch.load(tmp_path / "latest.pt").sum() == LARGE
    assert (tmp_path / "latest.pt").is_symlink()
    assert (tmp_path / "real" / "a.pt").stat().st_size > LARGE


def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(site: Site, tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(b"")
    (tmp_path / "old.pt").chmod(0o640)
    (tmp_path / "plain").write_bytes(b"")

    torch.save({}, tmp_path / "old.pt")
    torch.save({}, tmp_path / "new.pt")

    assert stat.S_IMODE((tmp_path / "old.pt").stat().st_mode) == 0o640
    assert (tmp_path / "new.pt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_with_two_names_keeps_both(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"old")
    os.link(tmp_path / "a.pt", tmp_path / "b.pt")

    torch.save({"x": 1}, tmp_path / "a.pt")

    assert torch.load(tmp_path / "b.pt") == {"x": 1}


def test_saves_to_one_name_come_in_their_order(site: Site, tmp_path: Path) -> None:
    for number in range(20):
        torch.save({"number": number}, tmp_path / "a.pt")

    assert torch.load(tmp_path / "a.pt") == {"number": 19}
    assert os.listdir(tmp_path) == ["a.pt"]


def test_what_cannot_be_pickled_raises_at_the_call_and_the_old_file_stays(site: Site, tmp_path: Path) -> None:
    torch.save({"x": 1}, tmp_path / "a.pt")

    with pytest.raises((pickle.PicklingError, AttributeError)):
        torch.save({"x": lambda: 1}, tmp_path / "a.pt")

    assert torch.load(tmp_path / "a.pt") == {"x": 1}
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("path", ["missing/a.pt", "folder", "a.pt/b.pt"])
def test_a_wrong_path_raises_as_it_would(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(Exception) as plain:
        torch.save({}, tmp_path / path)

    with applied("checkpoint.async"), pytest.raises(type(plain.value)) as ours:
        torch.save({}, tmp_path / path)

    assert str(ours.value) == str(plain.value)


def test_a_device_or_an_open_file_or_the_old_format_is_torchs(site: Site, tmp_path: Path) -> None:
    torch.save({"x": 1}, "/dev/null")
    with open(tmp_path / "open.pt", "wb") as file:
        torch.save({"x": 1}, file)
    torch.save({"x": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)

    assert torch.load(tmp_path / "open.pt") == torch.load(tmp_path / "old.pt") == {"x": 1}
    assert "saves" not in site.live


def test_a_killed_writer_costs_nothing(site: Site, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "first.pt")
    writer = stop_writer()
    torch.save(torch.ones(LARGE), tmp_path / "a.pt")

    os.kill(writer, signal.SIGKILL)

    assert torch.load(tmp_path / "a.pt").sum() == LARGE
    torch.save({"again": True}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt") == {"again": True}
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "first.pt"]


def test_without_memory_for_a_copy_it_is_written_as_ever(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_saver, "free_bytes", lambda: 1 << 20)

    torch.save(torch.ones(LARGE), tmp_path / "a.pt")

    assert torch.load(tmp_path / "a.pt").sum() == LARGE
    assert "saves" not in site.live
    assert os.listdir(tmp_path) == ["a.pt"]


def test_what_could_not_be_written_is_told_at_the_next_look(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    torch.save({}, tmp_path / "first.pt")
    writer = stop_writer()
    torch.save(torch.ones(LARGE), folder / "a.pt")
    _removed_by_another_process(folder)
    os.kill(writer, signal.SIGCONT)

    with pytest.raises(RuntimeError, match=r"could not be written: .*a\.pt"):
        torch.load(folder / "a.pt")

    torch.save({"x": 1}, tmp_path / "b.pt")
    assert torch.load(tmp_path / "b.pt") == {"x": 1}


def _removed_by_another_process(path: Path) -> None:
    """From another process, which waits for nothing of ours."""
    child = os.fork()
    if child == 0:
        saver_in_force().pending.clear()
        shutil.rmtree(path) if path.is_dir() else os.unlink(path)
        os._exit(0)
    os.waitpid(child, 0)


def test_a_forked_child_waits_for_its_parents_file(site: Site, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "first.pt")
    writer = stop_writer()
    torch.save(torch.ones(LARGE), tmp_path / "a.pt")

    child = os.fork()
    if child == 0:
        os._exit(0 if os.path.exists(tmp_path / "a.pt") else 1)
    os.kill(writer, signal.SIGCONT)

    assert os.waitpid(child, 0)[1] == 0


def test_left_over_files_of_a_killed_run_are_taken_away(site: Site, tmp_path: Path) -> None:
    (tmp_path / ".a.pt.flatout-99999-1").write_bytes(b"half")

    torch.save({}, tmp_path / "a.pt")

    assert os.listdir(tmp_path) == ["a.pt"]


def test_a_file_that_somebody_writes_is_not_left_over(tmp_path: Path) -> None:
    place = target_file.open_target(str(tmp_path / "a.pt"), 1)
    assert place is not None

    target_file.remove_left_over(str(tmp_path / "a.pt"))

    assert os.path.exists(place.temporary)
    place.drop()


def test_functions_of_the_system_are_put_back_and_still_known_for_what_they_can() -> None:
    names = ("stat", "open", "unlink", "rmdir", "scandir", "rename", "replace", "listdir", "remove")
    before = {name: getattr(os, name) for name in names} | {"builtin": builtins.open, "load": torch.load}

    with applied("checkpoint.async"):
        assert os.stat is not before["stat"]
        assert os.stat in os.supports_dir_fd and os.scandir in os.supports_fd

    assert {name: getattr(os, name) for name in names} | {"builtin": builtins.open, "load": torch.load} == before
    assert all(getattr(os, name) is before[name] for name in names)
    assert len([one for one in os.supports_dir_fd if hasattr(one, "__wrapped__")]) == 0


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.pt"
    target.write_bytes(b"old")
    memory = os.memfd_create("test")
    os.write(memory, b"x" * 100)
    monkeypatch.setattr(target_file, "disk_free_bytes", lambda path: 10)

    with pytest.raises(OSError, match="no space left") as raised:
        target_file.write_over(str(target), memory, 100, 3)

    os.close(memory)
    assert raised.value.errno == errno.ENOSPC
    assert target.read_bytes() == b"old"


def test_the_writer_needs_no_torch() -> None:
    path = checkpoint_saver.writer_process.__file__

    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import runpy, sys; runpy.run_path({path!r}); print('torch' in sys.modules)",
        ],
        capture_output=True,
        text=True,
    )

    assert done.stdout == "False\n", done.stderr


def test_a_denied_write_raises_as_it_would() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        child = os.fork()
        if child == 0:
            os._exit(0 if _is_denied_alike(folder) else 1)

        assert os.waitpid(child, 0)[1] == 0


def _is_denied_alike(folder: str) -> bool:
    if os.getuid() == 0:
        os.setuid(65534)
    words = []
    for remedies in (contextlib.nullcontext(), applied("checkpoint.async")):
        with remedies:
            try:
                torch.save({}, f"{folder}/a.pt")
            except RuntimeError as error:
                words.append(str(error))
    return len(words) == 2 and words[0] == words[1]


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_nothing_that_is_pickled_is_executed(site: Site, tmp_path: Path) -> None:
    torch.save({"trap": _Trap(tmp_path / "sprung")}, tmp_path / "a.pt")

    assert sorted(os.listdir(tmp_path)) == ["a.pt"]
    assert b"mkdir" in (tmp_path / "a.pt").read_bytes()


@pytest.mark.parametrize("wanted", [True, False])
def test_an_archive_has_its_check_sums(site: Site, tmp_path: Path, wanted: bool) -> None:
    state = {"large": torch.arange(float(LARGE)), "small": torch.ones(3), "none": torch.zeros(0), "words": "x" * 1000}
    torch.serialization.set_crc32_options(wanted)
    try:
        torch.save(state, tmp_path / "a.pt")
        assert torch.serialization.get_crc32_options() is wanted
    finally:
        torch.serialization.set_crc32_options(True)

    archive = zipfile.ZipFile(tmp_path / "a.pt")
    assert archive.testzip() == (None if wanted else archive.namelist()[0])
    assert _equal(torch.load(tmp_path / "a.pt"), state)
    archive.close()


def test_no_more_than_a_few_are_under_way(site: Site, tmp_path: Path) -> None:
    most = 0
    for number in range(12):
        torch.save(torch.full((LARGE,), float(number)), tmp_path / f"{number}.pt")
        most = max(most, len(saver_in_force().pending))

    assert 1 <= most <= 4
    assert [torch.load(tmp_path / f"{number}.pt")[-1].item() for number in range(12)] == list(range(12))


# A file that is saved under a passing name and renamed: the rename waits for nobody, and comes in its order.


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
    _removed_by_another_process(Path(saver_in_force().pending[first].temporary))
    os.kill(writer, signal.SIGCONT)

    assert torch.load(folder / "last.pt") == {"number": 1}
    assert os.listdir(folder) == ["last.pt"]
