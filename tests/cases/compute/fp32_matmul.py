"""Runs and code that have CO501, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from flatout.records.report import GpuUse, KernelShare, KernelUse, RunFacts
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run


def _facts(device: str) -> RunFacts:
    return RunFacts("run", ("train.py",), 0, 300, 30.0, 1, device, "2.13.0", "3.12")


def _case(name: str, found: bool, device: str = "NVIDIA H200", gpu: GpuUse | None = None, **state: object) -> Case:
    torch = {"matmul_precision": "highest", "matmul_allow_tf32": False, "grad_dtypes": {"float32": 1.0}, **state}
    card, known = (GpuState(0, dram_active=0.25),), live_state(**torch)
    return Case(name, run(gpu=gpu or on_gpu(tensor_active=0.0), gpus=card, run=_facts(device), live=known), found)


def _kernels(product_ms: float, on_tensor_cores_ms: float) -> KernelUse:
    kinds = (KernelShare("convolution", 10, 30.0, 28.0), KernelShare("gemm", 40, product_ms, on_tensor_cores_ms))
    return KernelUse(busy_ms=90.0, count=400.0, kinds=kinds)


CASES = (
    _case("finds it when tensor cores rest beside a busy GPU", found=True),
    _case("quiet when TF32 is on", found=False, matmul_precision="high", matmul_allow_tf32=True),
    _case("quiet when the tensor cores are at work", found=False, gpu=on_gpu(tensor_active=0.2)),
    _case("quiet under autocast", found=False, grad_dtypes={"bfloat16": 0.7, "float32": 0.3}),
    _case("quiet on a card without TF32", found=False, device="Tesla V100-SXM2-16GB"),
    _case("quiet when the host binds", found=False, gpu=on_gpu(tensor_active=0.0, drained_share=0.7)),
    _case("quiet when nobody counted", found=False, gpu=on_gpu(tensor_active=None, sm_active=None)),
    _case(
        "finds it when something small keeps the tensor cores a little active",
        found=True,
        gpu=on_gpu(tensor_active=0.028, sm_active=0.94),
        convolution_share=0.01,
    ),
    _case(
        "quiet when convolutions are what computes, and no kernel was recorded",
        found=False,
        gpu=on_gpu(tensor_active=0.028, sm_active=0.94),
        convolution_share=0.97,
    ),
    _case(
        "finds it by kernels of products, whatever the tensor cores do beside them",
        found=True,
        gpu=on_gpu(tensor_active=0.15, kernels=_kernels(product_ms=20.0, on_tensor_cores_ms=1.0)),
        convolution_share=0.6,
    ),
    _case(
        "quiet when the kernels of products are on tensor cores",
        found=False,
        gpu=on_gpu(tensor_active=0.01, kernels=_kernels(product_ms=20.0, on_tensor_cores_ms=19.8)),
    ),
)

_SCRIPT = """
import torch
from torch import nn
%s
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6).to("cuda")
for x, y in loader:  # found
    loss = criterion(model(x.to("cuda")), y.to("cuda"))
    loss.backward()
    optimizer.step()
"""
_QUIET = _SCRIPT.replace("  # found", "")
_PARTS = {
    "train.py": """
from model import Net
from engine import train

def main():
    torch.%s
    train(Net().cuda(), loader)
""",
    "engine.py": """
def train(model, loader):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
""",
    "model.py": "class Net(nn.Module):\n    def __init__(self):\n        self.layer = nn.Linear(9, 9)\n",
}
SOURCE_CASES = (
    SourceCase("finds it when nothing sets it", _SCRIPT % ""),
    SourceCase("finds it when it is commented out", _SCRIPT % "# torch.backends.cuda.matmul.allow_tf32 = True"),
    SourceCase(
        "finds it in the file that trains",
        {**_PARTS, "train.py": _PARTS["train.py"] % "manual_seed(0)"}
        | {"engine.py": _PARTS["engine.py"].replace("loader:\n", "loader:  # found\n")},
    ),
    SourceCase("quiet when it is set", _QUIET % 'torch.set_float32_matmul_precision("high")'),
    SourceCase(
        "quiet when another file of the training sets it",
        {**_PARTS, "train.py": _PARTS["train.py"] % "backends.cuda.matmul.allow_tf32 = True"},
    ),
    SourceCase("quiet when it is set to full precision on purpose", _QUIET % "torch.backends.fp32_precision = 'ieee'"),
    SourceCase(
        "quiet under autocast", (_QUIET % "").replace("    loss = ", "    with torch.autocast('cuda'): loss = ")
    ),
    SourceCase("quiet on a CPU", (_QUIET % "").replace("cuda", "cpu")),
    SourceCase(
        "quiet when only convolutions compute",
        (_QUIET % "").replace("nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6)", "nn.Conv2d(3, 9, 3)"),
    ),
    SourceCase("quiet when nothing trains here", "model = nn.Linear(9, 9).cuda()\nprint(model(x))\n"),
)
