"""Runs and code that have HO403, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import Case, live_state, on_gpu, run


def _with(met: int = 1, kind: str = "torch.optim.adamw.AdamW", **changes: Any) -> dict[str, Any]:
    known = {"class": kind, "fused": None, "foreach": None, "params": 160, **changes}
    return {"live": live_state([known]), "optimizers_met": met}


_LONG = {"forward": 25.0, "backward": 35.0, "optimizer": 40.0}
_STEPS = (LineCost(Location("train.py", 30), "train", "optimizer", 0.4, 40.0),)
_DRY = on_gpu(util_mean=60.0, drained_share=0.4, device_ms={"optimizer": 38.0, "step": 100.0})
_AHEAD = on_gpu(drained_share=0.0, device_ms={"optimizer": 0.3, "step": 100.0})
_OWN = """\
class Lion(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(torch.sign(p.grad), alpha=-group["lr"])
"""
_IN_FUNCTION = """\
class Lion(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, group)

    def update(self, p, group):
        p.add_(torch.sign(p.grad), alpha=-group["lr"])
"""
_IN_UPDATE = (LineCost(Location("train.py", 8), "update", "optimizer", 0.38, 38.0),)
_IN_LOOP = (LineCost(Location("train.py", 5), "step", "optimizer", 0.38, 38.0),)
CASES = (
    Case("finds it when foreach is off", run(gpu=_DRY, ms=_LONG, all_lines=_STEPS, **_with(foreach=False)), found=True),
    Case("finds it when each parameter has its own optimizer", run(ms=_LONG, **_with(met=160, params=1)), found=True),
    Case("finds it on a CPU with foreach off", run(ms=_LONG, all_lines=_STEPS, **_with(foreach=False)), found=True),
    Case(
        "finds it when an optimizer of the script's own goes over its parameters",
        run(ms=_LONG, all_lines=_IN_LOOP, files={"train.py": _OWN}, **_with(kind="__main__.Lion")),
        found=True,
    ),
    Case(
        "finds it when a function does so for each of them",
        run(ms=_LONG, all_lines=_IN_UPDATE, files={"train.py": _IN_FUNCTION}, **_with(kind="__main__.Lion")),
        found=True,
    ),
    Case("quiet when it is fused", run(gpu=_DRY, ms=_LONG, **_with(fused=True)), found=False),
    Case("quiet when it is the default on a CPU", run(ms=_LONG, **_with()), found=False),
    Case(
        "quiet when the phase is short",
        run(ms={"forward": 40.0, "backward": 58.0, "optimizer": 2.0}, **_with(foreach=False)),
        found=False,
    ),
    Case("quiet when its launches hide behind the device", run(gpu=_AHEAD, **_with(foreach=False)), found=False),
)

_LOOP = """
import torch
for step, (x, y) in enumerate(loader):
    criterion(model(x), y).backward()
    optimizer.step()
    %s
"""
_AVERAGE = """
class Average:
    def __init__(self, model):
        self.shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for kept, now in zip(self.shadow.parameters(), model.parameters()):  # found
            kept.mul_(0.999).add_(now, alpha=0.001)

def train(model, loader):
    average = Average(model)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
        average.update(model)
"""
_OWN_STEP = """
from torch.optim import Optimizer

class Lion(Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:  # found
                if p.grad is None:
                    continue
                state = self.state[p]
                p -= group["lr"] * state["mean"].mul(0.9).add(p.grad, alpha=0.1).sign_()

optimizer = (Lion if own else torch.optim.SGD)(model.parameters(), lr=1e-3)
"""
_BY_HAND = """
def train(model, loader, lr):
    for batch in loader:
        model(batch).backward()
        with torch.no_grad():
            for p in model.parameters():  # found
                p.data -= lr * p.grad
        head_optimizer.step()
"""
_step = cases_in(_LOOP)
_OFF = "from torch import optim\noptimizer = optim.AdamW(model.parameters(), lr=1e-3, foreach=False)  # found\n"
SOURCE_CASES = (
    SourceCase("finds it when foreach is off", _OFF + _LOOP % "pass"),
    SourceCase("finds it in a moving average", _AVERAGE),
    SourceCase("finds it in an update by hand", _BY_HAND),
    SourceCase("finds it in an optimizer of the script's own", _OWN_STEP + _LOOP % "pass"),
    SourceCase(
        "quiet when nobody makes that optimizer",
        _OWN_STEP.split("optimizer = ")[0].replace("  # found", "") + _LOOP % "pass",
    ),
    _step(
        "finds it when targets follow slowly",
        "for p, t in zip(net.parameters(), target.parameters()):  # found",
        "    t.data.copy_(tau * p.data + (1 - tau) * t.data)",
    ),
    _step(
        "finds it when each gradient is clipped by itself",
        "for p in model.parameters():  # found",
        "    torch.nn.utils.clip_grad_norm_(p, 1.0)",
    ),
    SourceCase("quiet when foreach is on", _OFF.replace("foreach=False)  # found", "foreach=True)") + _LOOP % "pass"),
    SourceCase("quiet when nobody says", _OFF.replace(", foreach=False)  # found", ")") + _LOOP % "pass"),
    _step("quiet when all are clipped at once", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    _step("quiet when parts are frozen", "for p in model.parameters():", "    p.requires_grad_(False)"),
    _step("quiet when gradients are dropped", "for p in model.parameters():", "    p.grad = None"),
    _step(
        "quiet when targets are copied every thousand steps",
        "if step % 1000 == 0:",
        "    for p, t in zip(net.parameters(), target.parameters()):",
        "        t.data.copy_(p.data)",
    ),
)
