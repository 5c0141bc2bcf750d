"""The file that processes share: made whole, for one user, removed when its last owner is dead, however it died."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from flatout.feed.cache import segment as cache_segment
from flatout.feed.cache.segment import Segment, Unavailable, Word, open_segment, reap

NAME = f"{cache_segment.PREFIX}{os.geteuid()}-abc"
BUDGET = 4 << 20


def opened(folder: Path, samples: int = 10, budget: int = BUDGET) -> Segment:
    return open_segment(str(folder), NAME, samples, budget)


def forked(action: object) -> int:
    """A child that does something and then waits to be killed; returns when it has done it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # Kept until the end: a lock goes with the object that holds it.
            _held = action()  # type: ignore[operator]
            os.write(writing, b"x")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """An 8 MB file system in memory."""
    folder = tmp_path / "shm"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_segment_is_the_user_s_alone_and_goes_with_the_last_one(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    facts = (tmp_path / NAME).stat()

    assert stat.S_IMODE(facts.st_mode) == 0o600 and facts.st_uid == os.geteuid()
    one.close()
    assert (tmp_path / NAME).exists()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_it_is_not_inherited_by_programs_that_are_started(tmp_path: Path) -> None:
    segment = opened(tmp_path)

    assert not os.get_inheritable(segment._fd)
    segment.close()


def test_a_file_of_another_user_or_open_to_others_is_not_used(tmp_path: Path) -> None:
    (tmp_path / NAME).touch(mode=0o600)
    (tmp_path / NAME).chmod(0o644)

    with pytest.raises(Unavailable, match="mode 644: not used"):
        opened(tmp_path)

    (tmp_path / NAME).unlink()
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="cannot be opened"):
        opened(tmp_path)
    if os.geteuid() == 0:
        (tmp_path / NAME).unlink()
        (tmp_path / NAME).touch(mode=0o600)
        os.chown(tmp_path / NAME, 12345, -1)
        with pytest.raises(Unavailable, match="belongs to user 12345"):
            opened(tmp_path)


def test_a_file_that_is_no_cache_is_not_used(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * (1 << 20))
    (tmp_path / NAME).chmod(0o600)

    with pytest.raises(Unavailable):
        opened(tmp_path)


def test_a_cache_of_another_length_is_not_used(tmp_path: Path) -> None:
    segment = opened(tmp_path, samples=10)

    with pytest.raises(Unavailable, match="10 samples, not 11"):
        opened(tmp_path, samples=11)
    segment.close()


def test_segments_of_the_dead_are_reaped_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    child = forked(lambda: opened(tmp_path))

    assert reap(str(tmp_path)) == [] and (tmp_path / NAME).exists()
    kill(child)

    assert reap(str(tmp_path)) == [str(tmp_path / NAME)]
    assert list(tmp_path.iterdir()) == []


def test_an_unrelated_process_that_ends_takes_nothing_along(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    child = os.fork()
    if child == 0:
        opened(tmp_path).close()
        os._exit(0)
    os.waitpid(child, 0)

    assert (tmp_path / NAME).exists()
    segment.close()


def test_a_forked_child_holds_the_segment_by_itself(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    child = forked(lambda: segment.count(cache_segment.Counter.HITS))

    assert segment.total(cache_segment.Counter.HITS) == 1
    segment.close()
    assert (tmp_path / NAME).exists(), "the child still has it open"
    kill(child)
    assert reap(str(tmp_path)) == [str(tmp_path / NAME)]


def _hold(segment: Segment) -> object:
    context = segment.writing()
    assert context.__enter__()
    return context


def test_the_lock_of_a_killed_writer_is_free_at_once(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    child = forked(partial(_hold, segment))
    with segment.writing() as held:
        assert not held, "the child has it"
    kill(child)

    with segment.writing() as held:
        assert held
    segment.close()


def test_a_stopped_writer_does_not_stop_others_for_long(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    child = forked(partial(_hold, segment))
    os.kill(child, signal.SIGSTOP)
    began_s = time.monotonic()
    with segment.writing() as held:
        waited_s = time.monotonic() - began_s

    assert not held and waited_s < 2.0
    kill(child)
    segment.close()


def test_a_file_system_without_room_is_told_not_written_to(small_tmpfs: Path) -> None:
    with pytest.raises(Unavailable, match="no room for it"):
        opened(small_tmpfs, budget=100 << 20)

    assert list(small_tmpfs.iterdir()) == []


def test_growing_stops_where_the_file_system_is_full(small_tmpfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_segment, "_CHUNK_BYTES", 1 << 20)
    segment = opened(small_tmpfs, budget=100 << 20)

    while segment.grow(1 << 20, lambda nbytes: True):
        segment.data[segment.words[Word.DATA_AT] + segment.words[Word.ALLOCATED] - 1] = 1

    assert 6 << 20 <= segment.words[Word.ALLOCATED] < 8 << 20
    segment.close()


def test_growing_stops_where_the_training_needs_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_segment, "_CHUNK_BYTES", 1 << 20)
    segment = opened(tmp_path)

    assert not segment.grow(1, lambda nbytes: False)
    segment.close()
