"""`flatout watch` as a user calls it, on a machine that may have no GPU."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time

import pytest

FLATOUT = [sys.executable, "-m", "flatout", "watch"]
SMI_HEADER = "timestamp, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB]"
ENV = {**os.environ, "COLUMNS": "100"}


def watch(*args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FLATOUT, *args], capture_output=True, text=True, env=ENV, timeout=200, **kwargs)


@pytest.fixture
def sleeper():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.communicate()


def test_a_short_watch_prints_lines_a_csv_and_a_summary(tmp_path, sleeper):
    csv = tmp_path / "gpu_usage.csv"

    done = watch("--interval", "0.2", "--duration", "1", "--pid", str(sleeper.pid), "--csv", str(csv))

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("host: CPU") == 5
    assert re.search(r"watched \d\.\d s, 5 readings", done.stdout) and "main process" in done.stdout
    lines = csv.read_text().splitlines()
    assert lines[0].startswith(SMI_HEADER + ", ") and len(lines) >= 6
    assert watch("--read", str(csv)).returncode == 0


def test_json_holds_the_summary_alone():
    done = watch("--interval", "0.1", "--duration", "0.3", "--json")

    summary = json.loads(done.stdout)
    assert summary["schema"] == 1 and summary["readings"] >= 2 and summary["host"]["cpus_allowed"] > 0


def test_quiet_leaves_one_line():
    assert watch("--interval", "0.1", "--duration", "0.2", "-q").stdout.count("\n") == 1


def test_nvidia_smis_csv_gets_a_verdict(tmp_path):
    path = tmp_path / "gpu_usage.csv"
    lines = [f"2025/11/15 12:00:{s:02d}.000, {u} %, 20 %, 5120 MiB, 24576 MiB" for s, u in enumerate([65, 50, 80] * 5)]
    path.write_text("\n".join([SMI_HEADER, *lines, "2025/11/15 12:0"]))

    done = watch("--read", str(path))

    assert done.returncode == 0
    assert "65% ± 12, fluctuation 30 points" in done.stdout
    assert "some kernel ran 65% of the time" in done.stdout and "1 line could not be read" in done.stdout


def test_a_full_disk_ends_the_csv_and_not_the_watch(tmp_path):
    csv = tmp_path / "gpu.csv"

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = watch("--interval", "0.1", "--duration", "1", "--csv", str(csv), preexec_fn=small_files_only)

    assert done.returncode == 0 and "watched" in done.stdout
    assert done.stderr.count("watching goes on without it") == 1
    assert csv.read_text().startswith(SMI_HEADER)


def test_ctrl_c_ends_with_the_summary():
    child = subprocess.Popen([*FLATOUT, "--interval", "0.1"], stdout=subprocess.PIPE, text=True, env=ENV)
    assert child.stdout.readline().startswith(("host:", "GPU"))

    child.send_signal(signal.SIGINT)

    out, _ = child.communicate(timeout=200)
    assert child.returncode == 0 and "watched" in out


def test_it_ends_with_the_watched_process(sleeper):
    child = subprocess.Popen(
        [*FLATOUT, "--interval", "0.1", "--pid", str(sleeper.pid)], stdout=subprocess.PIPE, text=True, env=ENV
    )
    child.stdout.readline()

    sleeper.communicate(b"\n")

    out, _ = child.communicate(timeout=200)
    assert child.returncode == 0 and "watched" in out


def test_a_terminal_gets_a_live_table(sleeper):
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [*FLATOUT, "--interval", "0.2", "--duration", "1", "--pid", str(sleeper.pid)],
        stdout=follower,
        stderr=follower,
        env={**ENV, "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(follower)
    out = _drain(leader)

    assert child.wait(200) == 0
    assert "CPU of a core" in out and "watched" in out


def _drain(fd: int) -> str:
    data, end_s = b"", time.monotonic() + 30
    while time.monotonic() < end_s and select.select([fd], [], [], 10)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        data += more
    os.close(fd)
    return data.decode(errors="replace")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--interval", "0"], "--interval must be above 0, got 0"),
        (["--interval", "nan"], "--interval must be above 0, got nan"),
        (["--duration", "-3"], "--duration must be above 0, got -3"),
        (["--pid", "4194305"], "--pid 4194305: there is no such process"),
        (["--read", "/nowhere/x.csv"], "cannot read /nowhere/x.csv"),
        (["--read", "x.csv", "--pid", "1"], "--read summarises a file"),
        (["--csv", "/nowhere/x.csv", "--duration", "1"], "--csv /nowhere/x.csv: cannot be written"),
        (["--csv", "/dev/full", "--duration", "1"], "--csv /dev/full: cannot be written: No space left on device"),
        (["--interval", "fast"], "--interval"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(args, message):
    done = watch(*args)

    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
