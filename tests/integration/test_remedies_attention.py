"""Attention written by hand as one kernel, in a real script that knows nothing of it: the same training, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.watching import Run, Watch

_SCRIPT = """
import gc, json, math, pickle
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LENGTH, WIDTH, HEADS = 128, 32, 4

class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, HEADS, C // HEADS).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), CausalSelfAttention()

    def forward(self, x):
        return x + self.attention(self.norm(x))

model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for step in range(70):
    x = torch.randn(3, LENGTH, WIDTH)
    loss = (model(x) - x.roll(1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    out = model(torch.ones(1, 50, WIDTH)).sum().item()
truth = {"losses": losses, "out": out, "names": list(model.state_dict()), "size": len(pickle.dumps(model))}
print("TRUTH", json.dumps(truth))
gc.freeze()  # see scripts/truth.py
"""


def test_it_trains_the_same_and_is_worth_it_or_undone(watch: Watch, run_bare: Run, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(_SCRIPT)
    bare = run_bare(file, OMP_NUM_THREADS="1").truth

    seen = watch(file, options=("--remedy", "attention.fused=true"), OMP_NUM_THREADS="1")

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=1e-3)
    assert seen.truth["losses"][:10] == bare["losses"][:10] and seen.truth["losses"] != bare["losses"]
    assert seen.truth["out"] == pytest.approx(bare["out"], rel=1e-2, abs=1e-2)
    assert (seen.truth["names"], seen.truth["size"]) == (bare["names"], bare["size"])
    (remedy,) = seen.json["remedies"]
    assert remedy["live"]["modules"] == ["CausalSelfAttention"] and remedy["live"]["attentions"] == 2
    assert remedy["live"]["error_times"] <= 8.0
    if remedy["state"] == "applied":
        assert remedy["live"]["step_ms_after"] < remedy["live"]["step_ms_before"]
    else:
        assert "ms with the fused kernel" in remedy["why"] and "attention.fused undone" in seen.stderr
