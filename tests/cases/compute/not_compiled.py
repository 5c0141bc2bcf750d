"""Runs and code that have CO509, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.report import KernelShare, KernelUse, WorkShare
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run


def _case(name: str, found: bool, moving_ms: float = 40.0, left: float | None = None, **changes: Any) -> Case:
    """`left`: of the bytes of pointwise kernels, the share that fusing leaves."""
    kinds = (KernelShare("gemm", 100.0, 90.0 - moving_ms), KernelShare("pointwise", 400.0, moving_ms))
    work = () if left is None else (WorkShare("pointwise", "bfloat16", 400.0, 0.0, 1e11, left * 1e11),)
    state = live_state(compiled=changes.pop("compiled", False))
    gpu = on_gpu(kernels=KernelUse(90.0, 500.0, kinds), work=work, **changes)
    return Case(name, run(gpu=gpu, live=state), found)


CASES = (
    _case("finds it when kernels that wait for memory take much of the step", found=True),
    _case("finds it when fusing leaves half of the bytes", found=True, left=0.5),
    _case("quiet when fusing leaves nearly all of them", found=False, left=0.95),
    _case("quiet when products take the step", found=False, moving_ms=5.0),
    _case("quiet when it is compiled", found=False, compiled=True),
    _case("quiet when the host binds", found=False, drained_share=0.7),
)

_SCRIPT = """
import re
import torch

pattern = re.compile("x+")
model = Net().to("cuda")
for x, y in loader:  # found
    loss = criterion(model(x.to("cuda")), y.to("cuda"))
    loss.backward()
    optimizer.step()
"""
_QUIET = _SCRIPT.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it where the model is trained", _SCRIPT),
    SourceCase(
        "finds it in a function that is given the model",
        "def train(model, loader):\n    for x in loader:  # found\n        loss = model(x.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n",
    ),
    SourceCase("quiet when the model is compiled", _QUIET + "model = torch.compile(model)\n"),
    SourceCase("quiet when it is compiled in place", _QUIET.replace("for x, y", "model.compile()\nfor x, y")),
    SourceCase("quiet when a part is", "@torch.compile\ndef gelu(x):\n    return x\n" + _QUIET),
    SourceCase("quiet when it is scripted", _QUIET + "model = torch.jit.script(model)\n"),
    SourceCase("quiet when each batch has another shape", "from torch_geometric.data import Data\n" + _QUIET),
    SourceCase("quiet on a CPU", _QUIET.replace("cuda", "cpu")),
    SourceCase("quiet when a launcher has a say", "accelerator = Accelerator()\n" + _QUIET),
)
