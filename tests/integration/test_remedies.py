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


def test_the_record_says_what_was_applied(watch: Watch, tmp_path: Path) -> None:
    seen = watch(_script(tmp_path), options=("--remedy", "precision.tf32=true"))

    assert seen.returncode == 0, seen.stderr
    assert "precision high" in seen.stdout
    (remedy,) = seen.json["remedies"]
    assert (remedy["id"], remedy["state"], remedy["safety"]) == ("precision.tf32", "applied", "numeric")
    assert remedy["live"]["matmul_precision"] == "high"


def test_without_a_profile_nothing_is_applied(watch: Watch, tmp_path: Path) -> None:
    seen = watch(_script(tmp_path), FLATOUT_REMEDIES='{"precision.tf32": true}')

    assert "precision highest" in seen.stdout
    assert seen.json["remedies"] == []


def test_a_wrong_profile_starts_nothing(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "flatout.toml").write_text("[remedies]\nno.such = 1\n")

    done = subprocess.run(
        [sys.executable, "-m", "flatout", "run", "--with", "flatout.toml", str(_script(tmp_path))],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert "flatout.toml:2: no remedy is called 'no.such'" in done.stderr
    assert not (tmp_path / ".flatout").exists()
