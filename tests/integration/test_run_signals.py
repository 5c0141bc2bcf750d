"""Signals around `flatout run`: they reach the script, and cost neither it nor the verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON, LIMIT_S, RUN, run, start, until

_HANDLER = """
import os, signal, sys, time
def fired(number, frame):
    print("fired", number, flush=True)
    sys.exit(5)
signal.signal(signal.{name}, fired)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


_IMPATIENT = """
import os, sys, time
while os.getppid() == int(sys.argv[2]):
    time.sleep(0.005)
for _ in range(500):
    if not os.path.exists("report.json"):
        os.kill(int(sys.argv[1]), 15)
        time.sleep(0.01)
"""


def test_a_request_to_end_after_the_script_has_ended_waits_for_the_verdict(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "impatient.py").write_text(_IMPATIENT)
    text = "import os, subprocess, sys\n"
    text += "words = [sys.executable, '-S', 'impatient.py', str(os.getppid()), str(os.getpid())]\n"
    text += "subprocess.Popen(words, start_new_session=True)\n"

    done = run("--json", "report.json", str(script(text)), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["run"]["exit_code"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "SIGTERM",
        "SIGINT",
        *(pytest.param(name, marks=pytest.mark.variant) for name in ("SIGHUP", "SIGUSR1", "SIGUSR2")),
    ],
)
def test_signals_to_flatout_alone_reach_the_scripts_handler(
    script: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    path = script(_HANDLER.format(name=name))
    # A session of its own: no terminal sends anything to anybody.
    process = start(str(path), cwd=tmp_path, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    number = getattr(signal, name)
    process.send_signal(number)

    out, _ = process.communicate(timeout=LIMIT_S)
    assert (out, process.returncode) == (f"fired {int(number)}\n".encode(), 5)


def test_an_ignored_signal_stays_ignored(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)")

    done = subprocess.run(["nohup", *RUN, str(path)], cwd=tmp_path, env=ENVIRON, capture_output=True)

    assert done.stdout == b"True\n"


def test_the_parent_killed_leaves_the_script_alone(script: Callable[[str], Path], tmp_path: Path) -> None:
    text = "import time, os\nprint(os.getpid(), flush=True)\n"
    text += "while not os.path.exists('go'): time.sleep(0.02)\nprint('still here')\nopen('finished', 'w').close()\n"
    process = start(str(script(text)), cwd=tmp_path)
    assert process.stdout is not None
    child = int(process.stdout.readline())

    process.send_signal(signal.SIGKILL)
    process.wait(timeout=LIMIT_S)
    os.kill(child, 0)
    (tmp_path / "go").touch()

    until((tmp_path / "finished").exists)
    assert process.communicate()[0] == b"still here\n"
