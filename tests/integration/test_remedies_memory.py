"""Remedies for memory in a real script that knows nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.watching import Run, Watch

_SCRIPT = """
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, x):
        return x + self.layers(self.norm(x))

model = nn.Sequential(nn.Linear(4, 8), *(Block() for _ in range(3)), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
losses = []
loader = DataLoader(TensorDataset(torch.randn(70, 4), torch.randint(0, 2, (70,))), batch_size=16, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
print("TRUTH", json.dumps({"losses": losses, "schedule": schedule.last_epoch, "lr": schedule.get_last_lr()}))
"""


def test_a_batch_in_parts_with_its_blocks_run_again(run_bare: Run, watch: Watch, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(_SCRIPT)
    bare = run_bare(file).truth

    seen = watch(file, options=("--remedy", "batch.accumulate=4", "--remedy", "memory.checkpointing=true"))

    assert seen.returncode == 0, seen.stderr
    states = {one["id"]: one for one in seen.json["remedies"]}
    assert {one["state"] for one in states.values()} == {"applied"}, states
    assert states["batch.accumulate"]["live"]["batches"] == "4 + 4 + 4 + 4"
    assert states["memory.checkpointing"]["live"] == {"blocks": 3, "kinds": "Block"}
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=1e-4)
    assert (seen.truth["schedule"], seen.truth["lr"]) == (bare["schedule"], bare["lr"])
    assert seen.json["run"]["steps"] == 15
