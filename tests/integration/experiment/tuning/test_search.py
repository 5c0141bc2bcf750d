"""`flatout tune` with a real script: its trials, a kill in the middle, and what is left in the user's folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON, until

pytestmark = pytest.mark.timeout(240)

_SCRIPT = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
if config["model"]["width"] == 13:
    raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")
data = TensorDataset(torch.randn(4000, 8))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (batch,) in DataLoader(data, 4, shuffle=True):
    time.sleep(0.001 * config["model"]["width"])
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    print(f"PSNR: {30 + config['model']['width'] / 100}", flush=True)
"""


def _folder(folder: Path) -> dict[str, str]:
    (folder / "train.py").write_text(_SCRIPT)
    (folder / "c.json").write_text('{"model": {"width": 20, "n": 1}}')
    return _contents(folder)


def _contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


def _tune(*words: str) -> list[str]:
    knob = ("--knob", "c.json:model.width=2,13", "--metric", "PSNR: ([0-9.]+)", "--steps", "12", "--warm-up", "2")
    return [sys.executable, "-m", "flatout", "tune", *knob, *words, "train.py", "--config", "c.json"]


def _settings(folder: Path) -> list[str]:
    (journal,) = folder.glob(".flatout/tune/*/trials.jsonl")
    lines = map(json.loads, journal.read_text().splitlines())
    return [json.dumps([line["setting"], line["steps"], line["repeat"]]) for line in lines]


def _has_trials(folder: Path, count: int) -> bool:
    journals = list(folder.glob(".flatout/tune/*/trials.jsonl"))
    return bool(journals) and journals[0].read_bytes().count(b"\n") >= count


@pytest.mark.slow
def test_a_killed_search_goes_on_and_the_users_files_stay(tmp_path: Path) -> None:
    before = _folder(tmp_path)
    first = subprocess.Popen(_tune(), cwd=tmp_path, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _has_trials(tmp_path, 1))
    finally:
        first.kill()
        first.wait()
    made = _settings(tmp_path)

    done = subprocess.run(
        _tune("--json", "-", "--preset", "aggressive"),
        cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    trials = _settings(tmp_path)
    assert trials[: len(made)] == made and len(trials) == len(set(trials)), "none is made twice"
    result = json.loads(done.stdout)
    by_width = {point["setting"].get("c.json:model.width"): point for point in result["points"]}
    assert by_width[13]["why"].startswith("out of memory")
    assert by_width[2]["samples_per_s"] > 2 * by_width[None]["samples_per_s"]
    assert (by_width[2]["metric"], by_width[None]["metric"]) == (30.02, 30.2)
    assert result["chosen"]["point"]["setting"] == {"c.json:model.width": 2}
    assert "quality lower by 0.18 dB" in result["chosen"]["why"]
    assert "were made before and are not made again" in done.stderr and "out of memory" in done.stderr

    copy = tmp_path / result["chosen"]["command"].split()[-1]
    assert copy.read_text() == '{"model": {"width": 2, "n": 1}}'
    assert _contents(tmp_path) == before


@pytest.mark.slow
def test_a_script_that_fails_by_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nraise SystemExit('no data here')\n")

    done = subprocess.run(
        [sys.executable, "-m", "flatout", "tune", "--knob", "workers=1,2", "train.py"],
        cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "the script as it is cannot be measured" in done.stderr and "no data here" in done.stderr
