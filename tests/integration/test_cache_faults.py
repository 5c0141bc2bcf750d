"""What the shared cache must survive: no room, kills of whole groups, attachers that end, other users."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cached, is_cached
from flatout.feed.cache.segment import SHARED_MEMORY
from flatout.feed.cache.table import release_all
from tests.integration.running import ENVIRON, run, until

TRAINING = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cached, is_cached

class Slow(Dataset):
    name = sys.argv[1]
    def __init__(self): self.run = sys.argv[1]
    def __len__(self): return 64
    def __getitem__(self, index):
        time.sleep(2e-4)
        return torch.full((int(sys.argv[5]),), index % 256, dtype=torch.uint8), index

if __name__ == "__main__":
    workers, epochs = int(sys.argv[2]), int(sys.argv[3])
    cache_place.SHARED_MEMORY = sys.argv[6]
    dataset = cached(Slow(), sys.argv[4])
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=workers)
    for epoch in range(epochs):
        seen = sorted(index for images, labels in loader for index in labels.tolist())
        assert seen == list(range(64))
        print("epoch", epoch, is_cached(dataset), flush=True)
"""
LIMIT_S = 60


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Shared memory that no other test has a part in."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as name:
        os.chmod(name, 0o777)
        monkeypatch.setattr(cache_place, "SHARED_MEMORY", name)
        yield Path(name)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a script in a process group of its own; what is left of it is killed at the end."""
    children: list[subprocess.Popen[str]] = []

    def start(*words: Any, **more: Any) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def first_epoch(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "epoch 0 True\n", line + child.communicate(timeout=LIMIT_S)[1]


def test_with_8_mb_of_shared_memory_training_goes_on_uncached(script: Path, tmp_path: Path) -> None:
    in_small = f'mount -t tmpfs -o size=8m tmpfs {SHARED_MEMORY} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", in_small, "sh", sys.executable, str(script)]
    if subprocess.run([*command[:5], "sh", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")

    done = subprocess.run(
        [*command, "run", "0", "2", "20MB", "400000", SHARED_MEMORY], env=ENVIRON, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "epoch 0 False\nepoch 1 False\n"
    assert done.stderr.count("flatout:") == 1 and "Slow is not cached" in done.stderr


def test_a_killed_group_is_reaped_and_an_attacher_that_ends_takes_nothing_along(
    script: Path, folder: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    first = started(script, "run", 2, 100_000, "20MB", 40_000, folder)
    first_epoch(first)
    (segment,) = folder.iterdir()
    inode = segment.stat().st_ino

    second = started(script, "run", 0, 1, "20MB", 40_000, folder)
    out, err = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 0 and out == "epoch 0 True\n", err
    assert segment.stat().st_ino == inode, "the unrelated attacher ended; the segment lives"
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600

    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    until(lambda: not any(_is_running(first.pid, pid) for pid in _processes()))
    assert segment.exists(), "nobody was left to remove it"

    third = started(script, "other", 0, 1, "20MB", 40_000, folder)
    third.communicate(timeout=LIMIT_S)
    assert third.returncode == 0 and list(folder.iterdir()) == [], "the next start reaped it and removed its own"


def test_a_worker_that_is_killed_leaves_the_others_their_cache(
    script: Path, folder: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    first = started(script, "run", 2, 100_000, "20MB", 40_000, folder)
    first_epoch(first)
    until(lambda: _kill_a_worker(first.pid))
    _, err = first.communicate(timeout=LIMIT_S)
    # torch ends the run, in words that depend on what the worker was handing over: that is its own affair.
    assert first.returncode != 0 and "Error" in err

    began_s = time.monotonic()
    second = started(script, "run", 0, 1, "20MB", 40_000, folder)
    assert second.communicate(timeout=LIMIT_S)[0] == "epoch 0 True\n"
    assert time.monotonic() - began_s < LIMIT_S / 2, "no lock of the dead was waited for"
    assert list(folder.iterdir()) == []


_KILLED = """
import os, signal, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((1000,), float(index))

if __name__ == "__main__":
    model = torch.nn.Linear(1000, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for epoch in range(3):
        for batch in DataLoader(Slow(), batch_size=8, num_workers=2):
            model(batch).mean().backward()
            optimizer.step()
    print(*[name for name in os.listdir("/dev/shm") if name.startswith("flatout-cache-")], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_whoever_watches_frees_what_a_killed_script_leaves(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(_KILLED)

    done = run("--remedy", "loader.cache=true", "killed.py", cwd=tmp_path)

    there = set(done.stdout.decode().split())
    assert done.returncode == 137 and there, done.stderr
    assert not there & set(os.listdir(SHARED_MEMORY))


class _Slow(list[int]):
    """Worth keeping: what is made at once is not."""

    def __getitem__(self, index: Any) -> Any:
        time.sleep(0.001)
        return super().__getitem__(index)


def test_two_users_with_the_same_run_have_separate_caches(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    here = cached(_Slow(range(1000)), "4MB")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            release_all()
            os.setuid(54321)
            theirs = cached(_Slow(range(1000)), "4MB")
            assert is_cached(theirs) and theirs[5] == 5 and theirs.stats().misses == 1
            path = theirs.__dict__["_flatout_table"].segment.path
            os.write(writing, f"{path} {os.stat(path).st_mode & 0o777:o} {os.stat(path).st_uid}".encode())
            release_all()
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    theirs, mode, user = os.read(reading, 4096).decode().split()
    os.close(reading)
    (mine,) = folder.iterdir()

    assert Path(theirs).name != mine.name and (mode, user) == ("600", "54321")
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    assert here.stats().misses == 0, "what they read is not here"
    release_all()


def _kill_a_worker(group: int) -> bool:
    """False between two epochs, when there is none."""
    for pid in _processes():
        if pid != group and _is_running(group, pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
    return False


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_running(group: int, pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = text.rpartition(")")[2].split()
    return fields[0] != "Z" and int(fields[2]) == group
