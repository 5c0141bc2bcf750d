"""Numeric remedies in real scripts that know nothing of them: the same training, other rounding, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.watching import Run, Watch, Watched

_SCRIPT = """
import copy, gc, json, pickle, sys, warnings
import torch
from torch import nn

warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        inner = self.body(x)
        self.dtype = str(inner.dtype)
        self.last = inner.is_contiguous(memory_format=torch.channels_last) and not inner.is_contiguous()
        return {"out": self.head(inner.mean((2, 3)))}

model, criterion = Net(), nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
losses, norms = [], []
for step in range(40):
    for part in range(2):
        x = torch.randn(8, 3, 6, 6)
        loss = criterion(model(x)["out"], x.mean((1, 2, 3))[:, None]) / 2
        loss.backward()
    norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            out = model(torch.ones(1, 3, 6, 6))["out"]
        model.train()
assert copy.deepcopy(model).state_dict().keys() == model.state_dict().keys() and pickle.dumps(model)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
optimizer.load_state_dict(torch.load("last.pt", weights_only=True)["optimizer"])
kept = {k: v for k, v in optimizer.state_dict().items() if k not in ("state", "param_groups")}
print("TRUTH", json.dumps({
    "losses": losses, "norms": norms, "dtype": model.dtype, "out": str(out.dtype), "last": model.last,
    "names": list(model.state_dict()), "lr": scheduler.get_last_lr(), "kept": kept,
}))
gc.freeze()  # see scripts/truth.py
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("numeric") / "train.py"
    file.write_text(_SCRIPT)
    return file


@pytest.fixture(scope="module")
def bare(run_bare: Run, script: Path) -> dict[str, Any]:
    return run_bare(script).truth


def _asked(*remedies: str) -> tuple[str, ...]:
    return tuple(word for remedy in remedies for word in ("--remedy", remedy))


def _same_training(seen: Watched, bare: dict[str, Any]) -> None:
    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=0.1, abs=0.01)
    assert seen.truth["norms"] == pytest.approx(bare["norms"], rel=0.2, abs=0.05)
    assert seen.truth["names"] == bare["names"] and seen.truth["lr"] == bare["lr"]
    assert seen.truth["out"] == "torch.float32"
    assert "lr_scheduler.step()" not in seen.stderr


def test_bf16_channels_last_and_a_fused_optimizer_together(watch: Watch, script: Path, bare: dict[str, Any]) -> None:
    asked = _asked("precision.bf16=true", "layout.channels_last=true", "optimizer.fused=true")

    seen = watch(script, options=asked)

    _same_training(seen, bare)
    assert seen.truth["losses"] != bare["losses"]
    assert (seen.truth["dtype"], seen.truth["last"]) == ("torch.bfloat16", True)
    states = {one["id"]: one for one in seen.json["remedies"]}
    assert {one["state"] for one in states.values()} == {"applied"}, states
    assert states["optimizer.fused"]["live"] == {"optimizers": ["AdamW: fused"]}
    assert states["precision.bf16"]["live"]["modules"] == ["Net"]


def test_fp16_is_scaled_clipped_accumulated_and_saved(watch: Watch, script: Path, bare: dict[str, Any]) -> None:
    seen = watch(script, options=_asked("precision.fp16=true"))

    _same_training(seen, bare)
    assert seen.truth["dtype"] == "torch.float16"
    assert seen.truth["kept"] == {"flatout_gradient_scale": {"scale": 4096.0, "good_steps": 36}}
    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "applied", remedy


@pytest.mark.variant
@pytest.mark.slow
def test_compiling_is_worth_it_or_undone(watch: Watch, script: Path, bare: dict[str, Any], tmp_path: Path) -> None:
    longer = tmp_path / "train.py"
    longer.write_text(_SCRIPT.replace("range(40)", "range(90)"))

    seen = watch(longer, options=_asked("compile.model=default"))

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"][:40] == pytest.approx(bare["losses"], rel=0.05, abs=0.005)
    assert seen.truth["names"] == bare["names"]
    (remedy,) = seen.json["remedies"]
    assert remedy["live"]["since_step"] == 30
    # What it takes until the model is compiled and was found to be worth it is no steady step.
    settled_at = remedy["live"].get("settled_at") or remedy["step"]
    assert settled_at > 30 and seen.json["warmup"]["steps"] >= settled_at - 1
    if remedy["state"] == "applied":
        assert remedy["live"]["step_ms_after"] < remedy["live"]["step_ms_before"]
        assert remedy["live"]["paid_back_after_steps"] >= 0
    else:
        assert "ms compiled" in remedy["why"] and "compile.model undone" in seen.stderr


def test_a_script_that_chooses_is_left_alone_and_told(watch: Watch, tmp_path: Path, run_bare: Run) -> None:
    file = tmp_path / "train.py"
    call = 'loss = criterion(model(x)["out"], x.mean((1, 2, 3))[:, None]) / 2'
    assert call in _SCRIPT
    own = f'with torch.autocast("cpu", torch.bfloat16):\n            {call}'
    file.write_text(_SCRIPT.replace(call, own))
    alone = run_bare(file).truth

    seen = watch(file, options=_asked("precision.bf16=true"))

    assert seen.truth == alone
    (remedy,) = seen.json["remedies"]
    assert (remedy["state"], remedy["why"]) == ("refused", "the script sets it itself: it uses autocast")
    assert "precision.bf16 is not used: the script sets it itself" in seen.stderr


def test_a_compiled_script_breaks_no_graph(watch: Watch, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        """
import json
import torch
import torch._dynamo.utils
from torch import nn

model = torch.compile(nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 1)), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
counters = torch._dynamo.utils.counters
print("COUNTERS", json.dumps([counters["graph_break"], counters["stats"]["unique_graphs"]]))
"""
    )

    seen = watch(file, options=_asked("precision.bf16=true", "optimizer.fused=true"))

    # Alone it is one graph; under autocast it is another program, and that is all.
    assert seen.told("COUNTERS") == [[{}, 2]]
    assert {one["state"] for one in seen.json["remedies"]} == {"applied"}


def test_ranks_stay_together(watch: Watch, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        """
import json, os, warnings
import torch
from torch import distributed, nn

warnings.filterwarnings("ignore")
distributed.init_process_group("gloo")
torch.manual_seed(distributed.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(20):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).pow(2).mean().backward()
    optimizer.step()
# In one piece: the other rank writes to the same pipe.
os.write(1, f"WEIGHTS {json.dumps([p.sum().item() for p in model.parameters()])}\\n".encode())
distributed.destroy_process_group()
"""
    )

    seen = watch("torchrun", "--nproc-per-node", "2", file, options=_asked("precision.fp16=true"))

    assert seen.returncode == 0, seen.stderr
    one, other = seen.told("WEIGHTS")
    assert one == other
    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "applied" and remedy["live"]["modules"] == ["Sequential"]
