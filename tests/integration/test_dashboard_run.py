"""`flatout run --serve`: the dashboard goes along with a run, gives way to it, and ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.dashboard import LIMIT_S, Server, events, greeted
from tests.integration.running import ENVIRON, RUN, until

TRAINING = """
import sys, time, torch
from pathlib import Path
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))

loader = torch.utils.data.DataLoader(Slow(), batch_size=4)
while not Path("stop").exists():
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
sys.exit(3)
"""
# For what does not depend on steps: torch takes seconds to import.
WAITING = """
import sys, time
from pathlib import Path
while not Path("stop").exists():
    time.sleep(0.01)
Path("done").touch()
sys.exit(3)
"""


@contextmanager
def started(folder: Path, script: str) -> Iterator[Server]:
    """A run with its dashboard. The script goes on until there is a file `stop`."""
    (folder / "train.py").write_text(script)
    words = [*RUN, "--out", "run", "--json", "report.json", "--serve", "--port", "0", "train.py"]
    process = subprocess.Popen(
        words, cwd=folder, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield greeted(process)
    finally:
        (folder / "stop").touch()
        process.communicate(timeout=LIMIT_S)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    with started(tmp_path, WAITING) as server:
        yield server


def _dashboard(parent: int) -> psutil.Process:
    (found,) = [one for one in psutil.Process(parent).children() if "flatout.dashboard.companion" in one.cmdline()]
    return found


def test_a_run_is_shown_while_it_goes_on_and_the_dashboard_ends_with_it(tmp_path: Path) -> None:
    told = []
    with started(tmp_path, TRAINING) as server:
        dashboard = _dashboard(server.process.pid)
        with closing(server.open(f"/api{server.path}/events")) as answer:
            for event in events(answer):
                told.append(event)
                if event.name == "verdict":
                    (tmp_path / "stop").touch()
        code = server.process.wait(LIMIT_S)

    report = json.loads((tmp_path / "report.json").read_text())
    live = [event.value for event in told if event.name == "verdict"]
    assert code == 3, "the script's own"
    assert live[0]["run"]["steps"] < report["run"]["steps"], "judged while it went on"
    assert [live[0]["findings"][0]["code"], live[-1]["findings"][0]["code"]] == ["IN101", "IN101"]
    # The last word is the same everywhere.
    assert live[-1]["verdict"] == report["verdict"] and live[-1]["next"] == report["next"]
    assert told[-1].name == "end" and told[-2].value["exit_code"] == 3
    until(lambda: not dashboard.is_running())


def test_it_gives_way_and_tells_nobody_the_token(running: Server) -> None:
    dashboard = _dashboard(running.process.pid)
    until(lambda: dashboard.nice() > 0)

    assert dashboard.nice() > psutil.Process(running.process.pid).nice()
    # In the session of the run: in one of its own, the kernel would give it as much as the training.
    assert os.getsid(dashboard.pid) == os.getsid(running.process.pid)
    assert os.getpgid(dashboard.pid) != os.getpgid(running.process.pid)
    for process in (dashboard, *psutil.Process(running.process.pid).children(recursive=True)):
        assert running.token not in " ".join([*process.cmdline(), *process.environ().values()])
    stored = [file for file in Path(dashboard.cwd(), "run").rglob("*") if file.is_file()]
    assert stored and all(running.token.encode() not in file.read_bytes() for file in stored)


def test_it_listens_on_this_machine_alone(running: Server) -> None:
    dashboard = _dashboard(running.process.pid)
    running.ask("/")

    listening = [one.laddr for one in dashboard.net_connections("inet") if one.status == psutil.CONN_LISTEN]

    assert listening == [("127.0.0.1", running.port)]


def test_a_killed_dashboard_does_not_disturb_the_run(running: Server, tmp_path: Path) -> None:
    _dashboard(running.process.pid).kill()
    (tmp_path / "stop").touch()

    code = running.process.wait(LIMIT_S)

    assert code == 3
    assert json.loads((tmp_path / "report.json").read_text())["run"]["exit_code"] == 3


def test_when_the_watcher_is_killed_the_dashboard_goes_and_the_training_stays(running: Server, tmp_path: Path) -> None:
    dashboard = _dashboard(running.process.pid)
    running.ask("/")

    os.kill(running.process.pid, signal.SIGKILL)

    until(lambda: not dashboard.is_running() or dashboard.status() == psutil.STATUS_ZOMBIE)
    (tmp_path / "stop").touch()
    until((tmp_path / "done").exists)


def _run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_a_port_that_is_taken_is_said_before_the_script_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('started', 'w')")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        done = _run(*RUN, "--serve", "--port", str(taken.getsockname()[1]), "train.py", cwd=tmp_path)

    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "cannot be used" in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("words", [["serve"], ["run", "--serve", "train.py"]])
def test_without_the_libraries_one_line_says_how_to_get_them(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    code = f"import sys; sys.modules['uvicorn'] = None; from flatout.cli import main; main({words!r})"

    done = _run(sys.executable, "-c", code, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr == "flatout: the dashboard needs uvicorn: pip install 'flatout[serve]'\n"


def test_a_port_without_a_dashboard_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    done = _run(*RUN, "--port", "8000", "train.py", cwd=tmp_path)

    assert done.returncode == 2 and "--port 8000 goes with --serve" in done.stderr


def test_serve_ends_at_ctrl_c(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "flatout", "serve", "--port", "0"]
    process = subprocess.Popen(words, cwd=tmp_path, env=ENVIRON, stderr=subprocess.PIPE, text=True)
    greeted(process)

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0 and said == ""


def test_the_address_as_json_is_all_of_stdout(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "flatout", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(words, cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())

    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=LIMIT_S)

    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/?token=") and rest == ""
