"""`flatout fix` and `flatout verify` on a real script, from the command line to the profile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import until

_SCRIPT = """
import gc, sys, time
gc.disable()  # see scripts/tried.py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 8 * 400

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((16,), float(i % 13)), i % 3


if __name__ == "__main__":
    last = int(sys.argv[1]) if len(sys.argv) > 1 else 10 ** 9
    torch.manual_seed(0)
    model = nn.Linear(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    gc.enable()
    for epoch in range(3):
        for step, (x, y) in enumerate(DataLoader(Slow(), 8, shuffle=True, num_workers=0)):
            if step == last:
                sys.exit()
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.006)  # so that a few workers suffice, whose start is little of an epoch
            print(f"PSNR: {30 - loss.item():.6f}", flush=True)
            if step % 10 == 0:
                torch.save(model.state_dict(), "model.pt")
                open("log.txt", "a").write(f"{step} {loss.item()}\\n")
"""


def _flatout(folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatout", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False, **more)


def _write(folder: Path) -> Path:
    (folder / "train.py").write_text(_SCRIPT)
    (folder / "log.txt").write_text("mine\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return _write(tmp_path)


@dataclass(frozen=True)
class Fixed:
    """One search on a slow loader, with a metric and --apply. `before` are the user's files, with their contents."""

    folder: Path
    before: dict[str, bytes]
    done: subprocess.CompletedProcess[str]
    result: dict[str, Any]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Fixed:
    folder = tmp_path_factory.mktemp("project")
    _write(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    words = ["--budget", "150s", "--only", "loader.workers", "--metric", r"PSNR: ([0-9.]+)", "--higher", "--apply"]
    done = _flatout(folder, "fix", *words, "--json", "fix.json", "train.py")
    assert done.returncode == 0, done.stderr
    return Fixed(folder, before, done, json.loads((folder / "fix.json").read_text()))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_loader_is_found_fed_and_proved(fed: Fixed) -> None:
    assert list(fed.result["profile"]) == ["loader.workers"]
    assert fed.result["gain"]["low"] > 1.2
    assert fed.result["quality"]["identity"]["verdict"] == "identical"
    assert {one["planned"]["id"] for one in fed.result["tried"]} == {"loader.workers"}
    assert "loader.workers = " in (fed.folder / "flatout.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_of_the_users_is_touched_but_what_is_to_be_edited(fed: Fixed) -> None:
    files = {path.name: path.read_bytes() for path in fed.folder.iterdir() if path.is_file()}
    ours = {"fix.json", "flatout.toml", "flatout.patch"}

    assert set(files) == set(fed.before) | ours
    assert {name for name in fed.before if files[name] != fed.before[name]} == {"train.py"}
    assert any(name.endswith("log.txt") for name in fed.result["written"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_metric_is_in_the_table_the_record_the_report_and_the_profile(fed: Fixed) -> None:
    said = fed.result["quality"]["metric"]["sentence"]
    page = _flatout(fed.folder, "report", "fix.json", "-o", "page.html")

    assert fed.result["quality"]["metric"]["verdict"] == "inside" and said.startswith("always ")
    assert f"your metric: {said}" in " ".join(fed.done.stderr.split())
    assert f"# your metric: {said}" in (fed.folder / "flatout.toml").read_text()
    assert page.returncode == 0, page.stderr
    assert said in (fed.folder / "page.html").read_text()
    (fed.folder / "page.html").unlink()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tool", [("git", "apply"), ("patch", "-p1", "-i")])
def test_the_patch_makes_the_same_edit(fed: Fixed, tmp_path: Path, tool: tuple[str, ...]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    (tmp_path / "train.py").write_bytes(fed.before["train.py"])

    done = subprocess.run([*tool, str(fed.folder / "flatout.patch")], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "train.py").read_bytes() == (fed.folder / "train.py").read_bytes()
    assert b"num_workers=0" not in (tmp_path / "train.py").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_edited_script_trains_the_same(fed: Fixed, tmp_path: Path) -> None:
    (tmp_path / "before.py").write_bytes(fed.before["train.py"])
    (tmp_path / "after.py").write_bytes((fed.folder / "train.py").read_bytes())

    before, after = (
        subprocess.run([sys.executable, name, "6"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
        for name in ("before.py", "after.py")
    )

    assert after.returncode == 0, after.stderr
    assert before.stdout.count("PSNR") == 6 and after.stdout == before.stdout


@pytest.mark.variant
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_comes_again_in_every_epoch_is_kept(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "scripts" / "comes_again.py"
    (tmp_path / "train.py").write_bytes(script.read_bytes())

    done = _flatout(tmp_path, "fix", "--budget", "150s", "--only", "memo.*", "--json", "fix.json", "train.py")

    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "fix.json").read_text())
    assert result["profile"] == {"memo.function": "__main__:targets"}
    assert result["gain"]["low"] > 1.5
    same = result["quality"]["identity"]
    # An epoch has 12 steps: most of those that were compared were made with what was kept.
    assert same["verdict"] == "identical" and same["weights_equal"] and same["steps"] > 40


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_profile_is_verified(project: Path) -> None:
    (project / "flatout.toml").write_text("[remedies]\nloader.workers = 4\n")

    done = _flatout(project, "verify", "--budget", "25s", "--json", "-", "flatout.toml", "train.py")

    assert done.returncode == 0, done.stderr
    assert "The profile holds" in done.stderr
    assert json.loads(done.stdout)["holds"] is True


def test_a_search_that_was_killed_goes_on(project: Path) -> None:
    words = [sys.executable, "-m", "flatout", "fix", "--budget", "20s", "--only", "gc.defer", "train.py"]
    begun = subprocess.Popen(words, cwd=project, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(project.glob(".flatout/fix/*/*/trial.json")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()

    done = _flatout(project, "fix", "--budget", "20s", "--only", "gc.defer", "train.py")

    assert "going on with 1 trials" in done.stderr
    assert done.returncode == 1
    assert "No remedy was kept" in done.stderr
    assert len(list(project.glob(".flatout/fix/*"))) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fix", "--budget", "60s"], "interrupted before anything was measured"),
        (["verify", "--budget", "60s", "flatout.toml"], "interrupted before the profile was judged"),
    ],
)
def test_who_is_asked_to_end_says_so_and_leaves_nothing_running(project: Path, words: list[str], said: str) -> None:
    (project / "flatout.toml").write_text("[remedies]\nloader.workers = 4\n")
    words = [sys.executable, "-m", "flatout", *words, "train.py"]
    begun = subprocess.Popen(words, cwd=project, stderr=subprocess.PIPE, text=True)
    until(lambda: len(_running_in(project)) > 1)

    begun.send_signal(signal.SIGTERM)

    assert said in begun.communicate(timeout=200)[1]
    assert begun.returncode == 130
    until(lambda: not _running_in(project))


def _running_in(folder: Path) -> list[str]:
    def is_there(pid: str) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/cwd") == str(folder)
        except OSError:
            return False

    return [pid for pid in os.listdir("/proc") if pid.isdigit() and is_there(pid)]


def test_the_plan_alone_tries_nothing(project: Path) -> None:
    """What other programs write is not contained: they are named."""
    script = project / "train.py"
    script.write_text(
        script.read_text().replace(
            "    torch.manual_seed", "    subprocess.run(['touch', 'log.txt'])\n    torch.manual_seed"
        )
    )
    script.write_text("import subprocess\n" + script.read_text())

    done = _flatout(project, "fix", "--dry-run", "--budget", "60s", "train.py")

    assert done.returncode == 0
    assert "loader.workers" in done.stderr
    assert "--allow numeric" in done.stderr or "Not tried" in done.stderr
    assert "started touch, whose writes are not contained" in done.stderr
    assert not (project / "flatout.toml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fix", "--allow", "everything", "train.py"], "--allow 'everything': write numeric or training"),
        (["fix", "--only", "loader.warp", "train.py"], "no remedy is called 'loader.warp'"),
        (["fix", "--budget", "soon", "train.py"], "--budget 'soon' is no time: write 90s, 10m or 1h"),
        (["fix", "--budget", "1s", "train.py"], "too short for any trial"),
        (["fix", "--metric", "PSNR", "train.py"], "must have one group"),
        (["fix", "--json", "gone/fix.json", "train.py"], "--json gone/fix.json: there is no folder gone"),
        (["fix", "-o", "gone/flatout.toml", "train.py"], "--profile gone/flatout.toml: there is no folder gone"),
        (["fix", "missing.py"], "no such script: 'missing.py'"),
        (["verify", "none.toml", "train.py"], "none.toml cannot be read"),
    ],
)
def test_a_mistake_is_one_line(project: Path, words: list[str], message: str) -> None:
    done = _flatout(project, *words)

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (project / ".flatout").exists() or not list(project.glob(".flatout/fix/*"))


def test_a_folder_that_cannot_be_written_to_is_one_line(project: Path) -> None:
    (project / ".flatout").write_text("a file where the trials would go")

    done = _flatout(project, "fix", "train.py")

    assert done.returncode == 2
    assert "cannot be written to" in done.stderr and done.stderr.count("\n") == 1


def test_a_script_that_fails_by_itself_is_told(project: Path) -> None:
    (project / "train.py").write_text("import torch\nraise ValueError('no data here')\n")

    done = _flatout(project, "fix", "--budget", "30s", "train.py")

    assert done.returncode == 2
    assert "does not train as it is (crashed: ValueError: no data here)" in done.stderr
