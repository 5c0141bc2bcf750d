"""Runs and code that have CO506, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from flatout.records.report import GpuUse
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run


def _case(name: str, found: bool, gpu: GpuUse | None = None, gpus: tuple[GpuState, ...] = (), **state: object) -> Case:
    known: dict[str, object] = {
        "matmul_precision": "high",
        "grad_dtypes": {"bfloat16": 0.9, "float32": 0.1},
        "convolution_layouts": {"channels_first bfloat16": 1.0},
        "convolution_share": 0.95,
        **state,
    }
    return Case(name, run(gpu=gpu or on_gpu(), gpus=gpus, live=live_state(**known)), found)


CASES = (
    _case("finds it when a network under autocast has channels first", found=True),
    _case(
        "finds it when the card counts what its kernels lose",
        found=True,
        gpu=on_gpu(sm_active=0.95, tensor_active=0.08),
        gpus=(GpuState(0, dram_active=0.33),),
    ),
    _case(
        "quiet when memory and tensor cores are active as it is",
        found=False,
        gpu=on_gpu(sm_active=0.95, tensor_active=0.5),
        gpus=(GpuState(0, dram_active=0.3),),
    ),
    _case("finds it in fp16", found=True, convolution_layouts={"channels_first float16": 0.9, "unknown float16": 0.1}),
    _case("quiet when channels are last", found=False, convolution_layouts={"channels_last bfloat16": 1.0}),
    _case("quiet in float32", found=False, convolution_layouts={"channels_first float32": 1.0}),
    _case("quiet when the layout is not known", found=False, convolution_layouts={"unknown bfloat16": 1.0}),
    _case("quiet when a transformer begins with one convolution", found=False, convolution_share=0.02),
    _case("quiet when the host binds", found=False, gpu=on_gpu(drained_share=0.7)),
    _case("quiet when a compiler chooses", found=False, compiled=True),
)

_NET = """
class Net(nn.Module):
    def __init__(self):
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 10, 1))
"""
_LOOP = """
model = %s.cuda()  # found
for x, y in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""
_QUIET = _LOOP.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it in a network under autocast", _NET + _LOOP % "Net()"),
    SourceCase(
        "finds it when the network lies in another file",
        {"train.py": "from net import Net\n" + _LOOP % "Net()", "net.py": _NET},
    ),
    SourceCase("finds it in a network by its name", _LOOP % "torchvision.models.resnet50()"),
    SourceCase("quiet when channels are last", _NET + _QUIET % "Net().to(memory_format=torch.channels_last)"),
    SourceCase("quiet in float32", _NET + (_QUIET % "Net()").replace("torch.autocast", "context")),
    SourceCase("quiet when it is compiled", _NET + _QUIET % "torch.compile(Net())"),
    SourceCase("quiet when a transformer cuts patches", _QUIET % "ViT(nn.Conv2d(3, 768, 16, 16))"),
)
