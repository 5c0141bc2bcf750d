"""What takes the place of Python's own functions, and that the very same are put back."""

from __future__ import annotations

import builtins
import io
import os
import posix
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.attach.trial import sandbox


@pytest.fixture
def told(tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    notes: list[dict[str, str]] = []
    (tmp_path / "user").mkdir()
    sandbox.begin(str(tmp_path / "scratch"), [str(tmp_path / "user")], notes.append)
    yield notes
    sandbox.end()


def test_every_original_is_put_back(tmp_path: Path) -> None:
    names = [name for name in dir(posix) if callable(getattr(posix, name)) and hasattr(os, name)]
    before = {name: getattr(os, name) for name in names}
    others = builtins.open, io.open, io.FileIO, set(os.supports_dir_fd)
    closer = tempfile._TemporaryFileCloser  # type: ignore[attr-defined]
    defaults = {name: vars(closer)[name].__defaults__ for name in ("close", "cleanup") if name in vars(closer)}

    sandbox.begin(str(tmp_path / "scratch"), [str(tmp_path)], lambda fact: None)
    during = {name: getattr(os, name) for name in names}
    sandbox.end()

    assert {name for name in names if during[name] is not before[name]} >= {"open", "stat", "rename", "scandir"}
    assert all(getattr(os, name) is before[name] for name in names)
    assert (builtins.open, io.open, io.FileIO, set(os.supports_dir_fd)) == others
    assert all(vars(closer)[name].__defaults__ == given for name, given in defaults.items())


def test_each_path_is_told_once_and_the_user_has_none_of_it(told: list[dict[str, str]], tmp_path: Path) -> None:
    user = tmp_path / "user"

    for _ in range(3):
        (user / "a.txt").write_text("a")
    (tmp_path / "temporary.txt").write_text("kept")

    assert told == [{"file": f"{user}/a.txt"}]
    assert (user / "a.txt").read_text() == "a"
    sandbox.end()
    assert list(user.iterdir()) == []
    assert (tmp_path / "temporary.txt").read_text() == "kept"


def test_the_scratch_folder_is_not_come_upon(tmp_path: Path) -> None:
    scratch = tmp_path / "user" / ".runs" / "scratch"
    scratch.mkdir(parents=True)
    (tmp_path / "user" / "1.png").write_text("1")
    sandbox.begin(str(scratch), [str(tmp_path / "user")], lambda fact: None)
    try:
        (tmp_path / "user" / "2.png").write_text("2")
        found = sorted(path.name for path in (tmp_path / "user").rglob("*"))
        walked = [name for _, folders, files in os.walk(tmp_path / "user") for name in folders + files]
    finally:
        sandbox.end()

    assert found == sorted(walked) == [".runs", "1.png", "2.png"]


def test_a_note_that_fails_does_not_reach_the_script(tmp_path: Path) -> None:
    def fails(text: str) -> None:
        raise ValueError(text)

    sandbox.begin(str(tmp_path / "scratch"), [str(tmp_path / "user")], fails)
    try:
        os.mkdir(tmp_path / "user")
        (tmp_path / "user" / "a.txt").write_text("a")
    finally:
        sandbox.end()

    assert not (tmp_path / "user").exists()


def test_they_pass_for_what_they_stand_for(told: list[dict[str, str]], tmp_path: Path) -> None:
    class Keeps:
        opens = open
        stats = os.stat

    with io.FileIO(tmp_path / "user" / "raw", "w") as raw:
        raw.write(b"1")
    with open(tmp_path / "user" / "raw", "rb", buffering=0) as read:
        assert isinstance(read, io.FileIO)
        assert isinstance(raw, io.FileIO)
        assert read.read() == b"1"
    assert Keeps().stats(tmp_path / "user" / "raw").st_size == 1
    assert Keeps().opens(tmp_path / "user" / "raw").close() is None
    assert os.stat.__name__ == "stat"


def test_attributes_changed_by_descriptor_are_those_of_the_mirror(tmp_path: Path) -> None:
    original = tmp_path / "user.txt"
    original.write_text("1")
    original.chmod(0o644)
    sandbox.begin(str(tmp_path / "scratch"), [str(original)], lambda fact: None)
    try:
        descriptor = os.open(original, os.O_RDONLY)
        os.fchmod(descriptor, 0o600)
        os.utime(descriptor, (1, 1))
        os.close(descriptor)
        during = original.stat()
    finally:
        sandbox.end()

    assert (during.st_mode & 0o777, during.st_mtime) == (0o600, 1)
    assert original.stat().st_mode & 0o777 == 0o644 and original.stat().st_mtime > 1


def test_a_mirror_of_an_earlier_process_is_seen_at_once(told: list[dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "user" / "a.txt").write_text("a")
    sandbox.end()
    assert not (tmp_path / "user" / "a.txt").exists()

    sandbox.begin(str(tmp_path / "scratch"), [str(tmp_path / "user")], told.append)

    assert (tmp_path / "user" / "a.txt").read_text() == "a"
