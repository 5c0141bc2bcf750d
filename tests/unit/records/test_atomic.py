"""A file is replaced as a whole, with the permissions it should have, and nothing is left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flatout.records.atomic import PRIVATE, SHARED, atomic_file, write_atomic


def test_the_file_is_replaced_by_text_or_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("before")

    write_atomic(file, "nähe\r\n")
    assert file.read_bytes() == "nähe\r\n".encode()

    write_atomic(str(file), b"\0\1", durable=True)
    assert file.read_bytes() == b"\0\1"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("mode", [PRIVATE, SHARED, 0o755])
def test_a_mode_is_kept_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(tmp_path / "file", b"", mode=mode)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_without_a_mode_the_umask_counts(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "file", b"")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "a.json"
    file.write_text("before")

    with pytest.raises(error), atomic_file(file) as temporary:
        temporary.write_text("half")
        raise error

    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_temporary_file_is_hidden_and_in_the_same_folder(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a.json") as temporary:
        assert temporary.parent == tmp_path and temporary.name.startswith(".a.json.")


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write_atomic(tmp_path / "no" / "file", b"")
