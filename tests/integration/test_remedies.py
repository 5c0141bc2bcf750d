"""A profile reaches the user's process, its workers and ranks, and the run's record says what came of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.watching import Watch

_SCRIPT = """
import torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
print("precision", torch.get_float32_matmul_precision())
"""


def _script(folder: Path, text: str = _SCRIPT) -> Path:
    file = folder / "train.py"
    file.write_text(text)
    return file


def test_the_record_says_what_was_applied_and_what_was_not(watch: Watch, tmp_path: Path) -> None:
    script = _script(tmp_path, _SCRIPT + "print('workers', torch.utils.data.DataLoader([1, 2]).num_workers)\n")
    asked = ("--remedy", "loader.workers=2", "--remedy", "loader.pin=true")

    seen = watch(script, options=asked, CUDA_VISIBLE_DEVICES="")

    assert seen.returncode == 0, seen.stderr
    assert "workers 2" in seen.stdout
    workers, pin = sorted(seen.json["remedies"], key=lambda one: one["id"] != "loader.workers")
    assert (workers["id"], workers["state"], workers["safety"]) == ("loader.workers", "applied", "lossless")
    assert workers["live"] == {"train.py:11": "num_workers 0 → 2"}
    assert (pin["id"], pin["state"]) == ("loader.pin", "refused") and "CUDA" in pin["why"]
    assert "Remedies in this run" in seen.stderr and "loader.pin: not applied: " in seen.stderr


def test_without_a_profile_nothing_is_applied(watch: Watch, tmp_path: Path) -> None:
    seen = watch(_script(tmp_path), FLATOUT_REMEDIES='{"precision.tf32": true}')

    assert "precision highest" in seen.stdout
    assert seen.json["remedies"] == []


def test_a_wrong_profile_starts_nothing(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "flatout.toml").write_text("[remedies]\nno.such = 1\n")

    done = subprocess.run(
        [sys.executable, "-m", "flatout", "run", "--with", "flatout.toml", str(_script(tmp_path))],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert "flatout.toml:2: no remedy is called 'no.such'" in done.stderr
    assert not (tmp_path / ".flatout").exists()


def test_every_rank_and_every_spawned_worker_is_reached(watch: Watch, tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, 4, num_workers=1, multiprocessing_context="spawn")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x[:, None]).sum().backward()
        optimizer.step()
    # A file each: lines that two processes print run into each other.
    open("workers-of-rank-" + os.environ["RANK"], "w").write(str(loader.num_workers))
""",
    )

    seen = watch("torchrun", "--nproc-per-node", "2", script, cwd=tmp_path, options=("--remedy", "loader.workers=2"))

    assert seen.returncode == 0, seen.stderr
    assert [(tmp_path / f"workers-of-rank-{rank}").read_text() for rank in (0, 1)] == ["2", "2"]
    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "applied"


def test_a_remedy_that_fails_leaves_the_training_alone(watch: Watch, tmp_path: Path) -> None:
    # A loader whose dataset cannot even be asked for its attributes.
    script = _script(
        tmp_path,
        _SCRIPT
        + """
class Odd(torch.utils.data.Dataset):
    @property
    def __dict__(self):
        raise RuntimeError("nobody may look")
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.ones(1)
loader = torch.utils.data.DataLoader(Odd(), 2)
print("workers", loader.num_workers, len(list(loader)))
""",
    )

    seen = watch(script, options=("--remedy", "loader.workers=2"))

    assert seen.returncode == 0, seen.stderr
    assert "workers 0 2" in seen.stdout
    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "reverted" and "nobody may look" in remedy["why"]
    assert "loader.workers undone" in seen.stderr


def test_a_viewer_is_throttled_from_the_command_line(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "viewer.py").write_text("calls = 0\n\n\ndef draw():\n    global calls\n    calls += 1\n")
    training = _SCRIPT.replace("    optimizer.step()\n", "    optimizer.step()\n    viewer.draw()\n")
    script = _script(tmp_path, f"import viewer\n{training}print('drawn', viewer.calls)\n")

    seen = watch(script, options=("--throttle", "viewer:draw=every 3 steps"))

    assert seen.returncode == 0, seen.stderr
    assert "drawn 2" in seen.stdout
