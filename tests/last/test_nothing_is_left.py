"""What `make test` leaves behind: no process, no shared memory, no file. It runs after all other tests.

`make test` marks its processes by a variable that every child inherits, and keeps a list of what was there before.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARK = "TESTS_OF"
# Children of a test that has just ended may still be on their way out.
LIMIT_S = 10.0

pytestmark = pytest.mark.skipif(MARK not in os.environ, reason="only `make test` knows what was there before")


def before() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(Path(os.environ[f"{MARK}_BEFORE"]).read_text())
    return found


def marked_processes() -> list[str]:
    """All that inherited the mark but `make` itself, its shell and this process."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    own = {os.getpid(), *ancestors()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) not in own and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # gone by now, or somebody else's
    return found


def ancestors() -> list[int]:
    found = [os.getppid()]
    while found[-1] > 1:
        status = Path(f"/proc/{found[-1]}/stat").read_text()
        found.append(int(status.rpartition(")")[2].split()[1]))
    return found


def test_no_process_is_left() -> None:
    deadline = time.monotonic() + LIMIT_S
    while (left := marked_processes()) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert not left


def test_no_shared_memory_is_left() -> None:
    assert not sorted(set(os.listdir("/dev/shm")) - set(before()["shm"]))


def test_no_folder_is_left() -> None:
    ours = [name for name in os.listdir(tempfile.gettempdir()) if "flatout" in name]

    assert not sorted(set(ours) - set(before()["tmp"]))


def test_the_checkout_is_as_it_was() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert not sorted(set(status.stdout.splitlines()) - set(before()["checkout"]))
