"""Numeric remedies on a GPU: they take effect, the training stays the same, and the device is not waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu

_SCRIPT = """
import json, sys, time
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
                                    for _ in range(4)])
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        inner = self.body(x)
        self.dtype = str(inner.dtype)
        self.last = inner.is_contiguous(memory_format=torch.channels_last) and not inner.is_contiguous()
        return self.head(inner.mean((2, 3)))

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(8, 16, 16, 24, 24, device="cuda")
losses = []
SYNCS
for step in range(STEPS):
    x = data[step % 8]
    optimizer.zero_grad()
    loss = (model(x) - x.mean((1, 2, 3))[:, None]).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.detach())
torch.cuda.set_sync_debug_mode(0)
matmul = torch.backends.cuda.matmul
print("TRUTH", json.dumps({
    "losses": [one.item() for one in losses], "dtype": model.dtype, "last": model.last,
    "tf32": matmul.allow_tf32, "benchmark": torch.backends.cudnn.benchmark,
    "fused": optimizer.param_groups[0]["fused"], "names": list(model.state_dict()),
    "scale": optimizer.state_dict().get("flatout_gradient_scale"),
}))
"""


def _script(folder: Path, steps: int = 60, syncs_are_errors_from: int | None = None) -> Path:
    text = _SCRIPT.replace("STEPS", str(steps))
    if syncs_are_errors_from is not None:
        # From then on every wait for the device raises.
        text = text.replace("SYNCS", "").replace(
            "    x = data[step % 8]\n",
            f"    x = data[step % 8]\n    if step == {syncs_are_errors_from}:\n"
            "        torch.cuda.set_sync_debug_mode('error')\n",
        )
    file = folder / "train.py"
    file.write_text(text.replace("SYNCS", ""))
    return file


@pytest.fixture(scope="module")
def bare(run_bare: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_bare(_script(tmp_path_factory.mktemp("bare"))).truth


def _asked(*remedies: str) -> tuple[str, ...]:
    return tuple(word for remedy in remedies for word in ("--remedy", remedy))


@pytest.mark.parametrize(
    ("remedy", "fact", "value", "close"),
    [
        ("precision.tf32=true", "tf32", True, 0.05),
        ("cudnn.benchmark=true", "benchmark", True, 0.05),
        ("layout.channels_last=true", "last", True, 0.05),
        ("optimizer.fused=true", "fused", True, 0.02),
        ("precision.bf16=true", "dtype", "torch.bfloat16", 0.15),
        ("precision.fp16=true", "dtype", "torch.float16", 0.15),
    ],
)
def test_it_takes_effect_and_trains_the_same(
    watch: Watch, bare: dict[str, Any], tmp_path: Path, remedy: str, fact: str, value: object, close: float
) -> None:
    seen = watch(_script(tmp_path), options=_asked(remedy))

    assert seen.returncode == 0, seen.stderr
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state
    assert seen.truth[fact] == value and bare[fact] != value
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=close, abs=0.02)
    assert seen.truth["names"] == bare["names"]


def test_an_autocast_that_a_switch_leaves_off_is_switched_on(
    watch: Watch, bare: dict[str, Any], tmp_path: Path
) -> None:
    file = _script(tmp_path)
    around = '    with torch.autocast("cuda", torch.float16, enabled="--amp" in sys.argv):\n        out = model(x)\n'
    text = file.read_text().replace("    loss = (model(x)", f"{around}    loss = (out")
    file.write_text(text)

    seen = watch(file, options=_asked("precision.bf16=true"))

    (state,) = seen.json["remedies"]
    assert state["state"] == "applied" and "switched off" in state["live"]["autocast"], state
    assert seen.truth["dtype"] == "torch.bfloat16"
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=0.15, abs=0.02)


@pytest.mark.parametrize(
    "remedies",
    [
        ("precision.bf16=true", "layout.channels_last=true", "cudnn.benchmark=true"),
        # A fused optimizer is told on the device which steps to leave out.
        ("precision.fp16=true", "optimizer.fused=true"),
    ],
    ids=["bf16", "fp16"],
)
def test_once_in_force_nothing_waits_for_the_device(watch: Watch, tmp_path: Path, remedies: tuple[str, ...]) -> None:
    # Past the first tries, over several looks of the guards.
    file = _script(tmp_path, steps=260, syncs_are_errors_from=20)

    seen = watch(file, options=_asked(*remedies), FLATOUT_SETTINGS='{"sync_windows": false}')

    assert seen.returncode == 0, seen.stderr
    assert {one["state"] for one in seen.json["remedies"]} == {"applied"}, seen.json["remedies"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiling_is_worth_it_or_undone(watch: Watch, bare: dict[str, Any], tmp_path: Path, mode: str) -> None:
    seen = watch(_script(tmp_path, steps=200), options=_asked(f"compile.model={mode}"))

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"][:60] == pytest.approx(bare["losses"], rel=0.05, abs=0.02)
    assert seen.truth["names"] == bare["names"]
    (state,) = seen.json["remedies"]
    if state["state"] == "applied":
        assert state["live"]["step_ms_after"] < state["live"]["step_ms_before"]
        assert state["live"]["graph_breaks"] == 0
    else:
        assert "ms compiled" in state["why"], state
