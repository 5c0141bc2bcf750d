"""Results of a function are kept in real trainings: the same numbers, less time, and nothing kept that is not pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flatout
from flatout.records.report import PHASES
from tests.integration.watching import Ran, Run, Watch, Watched

HEATMAP = Path(flatout.__file__).parent / "workloads" / "heatmap_npy" / "train.py"
SCRIPT = """
import ctypes, functools, torch
from torch.utils.data import DataLoader, TensorDataset

libc = ctypes.CDLL(None)
scale = 1.0

def counted(call):
    calls = [0]
    @functools.wraps(call)
    def counting(*args, **kwargs):
        calls[0] += 1
        return call(*args, **kwargs) + calls[0]
    counting.__module__ = "torch"
    return counting

torch.heaviside = counted(torch.heaviside)

def targets(x):
    out = torch.zeros(x.shape[0], 8)
    for i in range(x.shape[0]):
        for k in range(8):
            out[i, k] = torch.clamp(1 - (x[i, 0] - k) ** 2, min=0)
    return out * scale

def secret(x):
    return x * (libc.rand() % 3)

def moody(x):
    return torch.heaviside(x, torch.zeros(1))

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.rand(48, 8) * 8), batch_size=8, shuffle=False)
    for epoch in range(4):
        scale = 1.0 if epoch < 3 else 2.0
        for x, in loader:
            aims = targets(x)
            loss = (model(x) - aims - secret(x) - moody(x)).square().mean()
            aims.zero_()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("loss", loss.item().hex())
"""


def _state(seen: Watched) -> dict[str, Any]:
    (state,) = [remedy for remedy in seen.json["remedies"] if remedy["id"] == "memo.function"]
    return dict(state)


def _ms(seen: Watched, first: int, last: int) -> float:
    """Milliseconds of forward in the quickest of these steps: others are held up by whatever else runs."""
    return float(1e3 * seen.steps["phase_s"][first - 1 : last, PHASES.index("forward")].min())


@pytest.mark.variant
def test_targets_of_the_heatmap_project_are_computed_once(watch: Watch, run_bare: Run, tmp_path: Path) -> None:
    def words(name: str) -> list[str]:
        words = ["--size", "tiny", "--data", str(tmp_path / "data"), "--steps", "20", "--out", str(tmp_path / name)]
        rare = ["--options", "train.eval_epochs=9", "train.save_epochs=9"]
        return [*words, "--losses", str(tmp_path / f"{name}.json"), *rare]

    bare: Ran = run_bare(HEATMAP, *words("bare"))
    options = ["--remedy", "memo.function=slider.engine:TrainingEngine._generate_targets"]
    seen = watch(HEATMAP, *words("kept"), options=options)

    assert bare.returncode == seen.returncode == 0, seen.stderr
    losses = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("bare", "kept")]
    assert losses[0] == losses[1] and len(losses[0]) == 20
    ends = [torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("bare", "kept")]
    assert all(torch.equal(ends[0]["model"][name], ends[1]["model"][name]) for name in ends[0]["model"])
    assert torch.equal(ends[0]["rng"], ends[1]["rng"])
    state = _state(seen)
    assert (state["state"], state["live"]["hits"], state["live"]["misses"]) == ("applied", 16, 4), state
    # An epoch has 4 batches; the first three hits are computed again.
    assert state["live"]["hits_from_step"] == 8
    assert state["live"]["saved_s"] > 2 * state["live"]["own_s"]
    assert _ms(seen, 8, 20) < 0.9 * _ms(seen, 2, 7)


def test_what_is_secretly_impure_is_not_kept(
    watch: Watch, run_bare: Run, script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(SCRIPT)
    names = ",".join(f"__main__:{name}" for name in ("secret", "targets", "moody"))

    bare: Ran = run_bare(path)
    seen = watch(path, options=["--remedy", f"memo.function={names}"])

    assert seen.returncode == 0, seen.stderr
    assert seen.losses == bare.losses and len(bare.losses) == 24
    state = _state(seen)
    assert state["state"] == "applied"
    # A C function is refused by its name; one that looks like torch's is found out by what it gives.
    assert "secret: it calls libc.rand" in state["live"]["left"]
    assert "moody: the same arguments gave another result" in state["live"]["left"]
    # Epochs 2 and 3 find the results of the first; in the fourth another global is read.
    assert (state["live"]["hits"], state["live"]["misses"]) == (12, 12)
