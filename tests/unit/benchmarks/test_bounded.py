"""A command that takes too long is ended, with all that it started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.common.bounded import run_to_end

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def _gone(pid: int) -> bool:
    """Whether it ends within a few seconds; one that is dead and not yet waited for is gone."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    for seconds, limit_s, expected in (("0", 30.0, 0), ("60", 3.0, None)):
        printed, code = run_to_end([sys.executable, "-c", PARENT, seconds], tmp_path, os.environ, limit_s)

        assert code == expected
        assert _gone(int(printed))
