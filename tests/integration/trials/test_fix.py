"""`flatout fix` and `flatout verify` on a real script, from the command line to the profile."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = """
import sys, time
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
    torch.manual_seed(0)
    model = nn.Linear(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        for step, (x, y) in enumerate(DataLoader(Slow(), 8, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save(model.state_dict(), "model.pt")
                open("log.txt", "a").write(f"{step} {loss.item()}\\n")
"""


def _flatout(folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatout", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False, **more)


def _tree(folder: Path) -> dict[str, tuple[str, int]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".flatout" not in path.parts]
    return {path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "log.txt").write_text("mine\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_loader_is_found_fed_and_proved(project: Path) -> None:
    before = _tree(project)

    done = _flatout(project, "fix", "--budget", "60s", "--only", "loader.workers", "--json", "fix.json", "train.py")

    assert done.returncode == 0, done.stderr
    result = json.loads((project / "fix.json").read_text())
    assert list(result["profile"]) == ["loader.workers"]
    assert result["gain"]["low"] > 1.2
    assert result["quality"]["identity"]["verdict"] == "identical"
    assert {one["planned"]["id"] for one in result["tried"]} == {"loader.workers"}
    assert "loader.workers = " in (project / "flatout.toml").read_text()
    after = {name: facts for name, facts in _tree(project).items() if name in before}
    assert after == before
    assert not (project / "model.pt").exists()
    assert any(name.endswith("log.txt") for name in result["written"])


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_profile_is_verified(project: Path) -> None:
    (project / "flatout.toml").write_text("[remedies]\nloader.workers = 4\n")

    done = _flatout(project, "verify", "--budget", "25s", "--json", "-", "flatout.toml", "train.py")

    assert done.returncode == 0, done.stderr
    assert "The profile holds" in done.stderr
    assert json.loads(done.stdout)["holds"] is True


def test_a_search_that_was_killed_goes_on(project: Path) -> None:
    words = [sys.executable, "-m", "flatout", "fix", "--budget", "40s", "--only", "gc.defer", "train.py"]
    begun = subprocess.Popen(words, cwd=project, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(project.glob(".flatout/fix/*/*/trial.json")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()

    done = _flatout(project, "fix", "--budget", "40s", "--only", "gc.defer", "train.py")

    assert "going on with 1 trials" in done.stderr
    assert done.returncode == 1
    assert "Nothing was kept" in done.stderr
    assert len(list(project.glob(".flatout/fix/*"))) == 1


def test_the_plan_alone_tries_nothing(project: Path) -> None:
    done = _flatout(project, "fix", "--dry-run", "--budget", "60s", "train.py")

    assert done.returncode == 0
    assert "loader.workers" in done.stderr
    assert "--allow numeric" in done.stderr or "Not tried" in done.stderr
    assert not (project / "flatout.toml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fix", "--allow", "everything", "train.py"], "--allow 'everything': write numeric or training"),
        (["fix", "--only", "loader.warp", "train.py"], "no remedy is called 'loader.warp'"),
        (["fix", "--budget", "soon", "train.py"], "--budget 'soon' is no time: write 90s, 10m or 1h"),
        (["fix", "--budget", "1s", "train.py"], "too short for any trial"),
        (["fix", "--metric", "PSNR", "train.py"], "must have one group"),
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


def test_a_script_that_fails_by_itself_is_told(project: Path) -> None:
    (project / "train.py").write_text("import torch\nraise ValueError('no data here')\n")

    done = _flatout(project, "fix", "--budget", "30s", "train.py")

    assert done.returncode == 2
    assert "does not train as it is (crashed: ValueError: no data here)" in done.stderr
