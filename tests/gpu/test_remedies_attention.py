"""Attention written by hand as one kernel on a GPU: the same training, quicker, also with what else changes a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu

_SCRIPT = """
import json, math, sys
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LENGTH, WIDTH, HEADS, BATCH = 1024, 384, 6, 8
words = sys.argv[1:]

class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attn_dropout = nn.Dropout(0.1 if "dropout" in words else 0.0)
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x, padding):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, HEADS, C // HEADS).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if padding is None:
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        else:
            att = att.float().masked_fill(~padding, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)).to(v.dtype) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), CausalSelfAttention()

    def forward(self, x, padding):
        return x + self.attention(self.norm(x), padding)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, padding):
        for block in self.blocks:
            x = block(x, padding)
        return self.head(x)

model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
losses = []
for step in range(120):
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
    padding = None
    if "padding" in words:
        lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1), device="cuda")
        padding = (torch.arange(LENGTH, device="cuda") < lengths)[:, None, None, :]
    with torch.autocast("cuda", torch.bfloat16, enabled="bf16" in words):
        loss = (model(x, padding) - x.roll(1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print("TRUTH", json.dumps({"losses": [loss.item() for loss in losses], "names": list(model.state_dict())}))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("attention") / "train.py"
    file.write_text(_SCRIPT)
    return file


def _asked(*remedies: str) -> tuple[str, ...]:
    return tuple(word for remedy in remedies for word in ("--remedy", remedy))


def _assert_same_training(seen: Any, bare: dict[str, Any], close: float) -> None:
    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=close)
    assert seen.truth["names"] == bare["names"]


@pytest.mark.parametrize(
    ("words", "close"),
    # Adam makes of each rounding by 0.4% a step of its own: apart by 2.4% after 57 steps.
    [(("fp32",), 1e-3), (("bf16",), 0.03), (("bf16", "padding"), 0.03), (("fp32", "padding"), 1e-3)],
    ids=["fp32", "bf16", "bf16 padding", "fp32 padding"],
)
def test_it_is_quicker_and_trains_the_same(
    watch: Watch, run_bare: Run, script: Path, words: tuple[str, ...], close: float
) -> None:
    bare = run_bare(script, *words).truth

    seen = watch(script, *words, options=_asked("attention.fused=true"))

    _assert_same_training(seen, bare, close)
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state
    assert state["live"]["attentions"] == 4 and state["live"]["error_times"] <= 8.0
    assert state["live"]["step_ms_after"] < 0.9 * state["live"]["step_ms_before"], state


def test_dropout_draws_other_numbers_of_the_same_kind(watch: Watch, run_bare: Run, script: Path) -> None:
    bare = run_bare(script, "bf16", "dropout").truth

    seen = watch(script, "bf16", "dropout", options=_asked("attention.fused=true"))

    _assert_same_training(seen, bare, 0.03)
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state


def test_with_bf16_from_outside_it_is_proved_in_that(watch: Watch, script: Path) -> None:
    options = _asked("precision.bf16=true")
    rounded = watch(script, "fp32", options=options).truth

    seen = watch(script, "fp32", options=(*options, *_asked("attention.fused=true")))

    _assert_same_training(seen, rounded, 0.02)
    assert {state["state"] for state in seen.json["remedies"]} == {"applied"}, seen.json["remedies"]


def test_it_is_recorded_in_graphs_as_well(watch: Watch, run_bare: Run, script: Path) -> None:
    bare = run_bare(script, "bf16").truth

    seen = watch(script, "bf16", options=_asked("attention.fused=true", "graphs.model=true"))

    _assert_same_training(seen, bare, 0.03)
    states = {state["id"]: state for state in seen.json["remedies"]}
    assert states["attention.fused"]["live"]["attentions"] == 4, states
    assert states["graphs.model"]["live"].get("recorded_at_step", 0) >= 30, states


@pytest.mark.slow
def test_beside_a_compiled_model(watch: Watch, run_bare: Run, script: Path) -> None:
    bare = run_bare(script, "bf16").truth

    seen = watch(script, "bf16", options=_asked("attention.fused=true", "compile.model=default"))

    _assert_same_training(seen, bare, 0.02)
    states = {state["id"]: state for state in seen.json["remedies"]}
    assert states["attention.fused"]["state"] == "applied", states
    assert states["attention.fused"]["live"]["attentions"] == 4
