"""Results of a function are kept on a GPU: small arguments by their bytes, large ones by sums and a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flatout
from tests.integration.watching import Ran, Run, Watch, Watched

pytestmark = pytest.mark.gpu
HEATMAP = Path(flatout.__file__).parent / "workloads" / "heatmap_npy" / "train.py"
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)

def targets(x, points):
    out = torch.zeros(x.shape[0], 64, device=x.device)
    for i in range(points.shape[0]):
        at = int(points[i])
        for k in range(64):
            out[i, k] = torch.clamp(1 - (k - points[i]) ** 2, min=0)
        out[i, at] = 1.0
    return out + x.flatten(1)[:, :64] * 0.01

if __name__ == "__main__":
    x, points = torch.rand(64, 128, 512), torch.rand(64) * 63
    if "apart" in sys.argv:
        # Two batches of the same large tensor but for one bit.
        x[8:16], points[8:16] = x[:8], points[:8]
        x[8].view(-1)[-1] += 0.5
    model = torch.nn.Linear(512, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(x, points), batch_size=8)
    losses = []
    for epoch in range(5):
        for images, places in loader:
            images, places = images.cuda(), places.cuda()
            aims = targets(images, places)
            loss = (model(images.mean(1)) - aims).square().mean()
            aims.fill_(7.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
    print("LOSSES", losses)
"""


def _state(seen: Watched) -> dict[str, Any]:
    (state,) = [remedy for remedy in seen.json["remedies"] if remedy["id"] == "memo.function"]
    return dict(state)


def _ms(seen: Watched, first: int, last: int) -> float:
    """Milliseconds in the quickest of these steps."""
    return float(1e-6 * seen.steps["wall_ns"][first - 1 : last].min())


@pytest.mark.parametrize("words", [(), ("apart",)], ids=["plain", "apart by one bit"])
def test_large_arguments_are_told_apart_bit_by_bit(
    watch: Watch, run_bare: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)

    bare: Ran = run_bare(path, *words, **DETERMINISTIC)
    seen = watch(path, *words, options=["--remedy", "memo.function=__main__:targets"], **DETERMINISTIC)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses and len(bare.losses) == 1
    state = _state(seen)
    assert (state["state"], state["live"]["hits"], state["live"]["misses"]) == ("applied", 32, 8), state
    # The arguments of 8 batches of 2 MiB are kept beside the results.
    assert state["live"]["kept_bytes"] > 8 * (2 << 20)
    assert state["live"]["saved_s"] > 3 * state["live"]["own_s"]


def test_the_heatmap_project_is_faster_from_its_second_epoch_on(watch: Watch, run_bare: Run, tmp_path: Path) -> None:
    def words(name: str) -> list[str]:
        words = ["--size", "full", "--per-file", "8", "--files", "4", "--steps", "20", "--deterministic"]
        places = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / name)]
        return [*words, *places, "--losses", str(tmp_path / f"{name}.json")]

    bare: Ran = run_bare(HEATMAP, *words("bare"))
    options = ["--remedy", "memo.function=slider.engine:TrainingEngine._generate_targets"]
    seen = watch(HEATMAP, *words("kept"), options=options)

    assert bare.returncode == seen.returncode == 0, seen.stderr
    losses = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("bare", "kept")]
    assert losses[0] == losses[1] and len(losses[0]) == 20
    state = _state(seen)
    assert (state["state"], state["live"]["hits"], state["live"]["misses"]) == ("applied", 16, 4), state
    first = state["live"]["hits_from_step"]
    assert first == 8
    assert _ms(seen, first, 20) < 0.3 * _ms(seen, 2, first - 1)
