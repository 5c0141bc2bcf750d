"""Runs and code that have HO407, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from tests.cases.code import SourceCase
from tests.cases.evidence import Case, on_gpu, run


def _states(*frames: int, breaks: int = 0) -> tuple[dict[str, Any], ...]:
    return tuple({"compiled": True, "compiled_frames": count, "graph_breaks": breaks} for count in frames)


CASES = (
    Case("finds it when it goes on compiling", run(torch_states=_states(4, 20, 60), median_step_ms=70.0), found=True),
    Case(
        "finds it when every step compiles",
        run(
            ms={"forward": 300.0, "backward": 9.0, "optimizer": 2.0}, torch_states=_states(4, 400), median_step_ms=311.0
        ),
        found=True,
    ),
    Case(
        "finds it by the time that the compiler says it took",
        run(
            torch_states=(
                {"compiled": True, "compiled_frames": 4, "compile_s": 2.0},
                {"compiled": True, "compiled_frames": 40, "compile_s": 8.0},
            ),
            median_step_ms=100.0,
        ),
        found=True,
    ),
    Case(
        "finds it when breaks keep the device waiting",
        run(gpu=on_gpu(util_mean=40.0, drained_share=0.8), torch_states=_states(24, breaks=12), median_step_ms=100.0),
        found=True,
    ),
    Case("quiet when all is compiled at the start", run(torch_states=_states(4, 6), median_step_ms=70.0), found=False),
    Case(
        "finds it when the steady steps compile",
        run(torch_states=_states(4, 400), median_step_ms=100.0, compile_ms=40.0),
        found=True,
    ),
    Case(
        "quiet when what is compiled later is rare, and no steady step",
        run(
            torch_states=(
                {"compiled": True, "compiled_frames": 4, "compile_s": 2.0},
                {"compiled": True, "compiled_frames": 10, "compile_s": 40.0},
            ),
            median_step_ms=100.0,
            compile_ms=0.0,
        ),
        found=False,
    ),
    Case("quiet when nothing is compiled", run(median_step_ms=70.0), found=False),
    Case(
        "quiet when breaks hide behind the device",
        run(gpu=on_gpu(), torch_states=_states(24, breaks=12), median_step_ms=100.0),
        found=False,
    ),
)

_COMPILED = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().max().item()  # found
        return self.normed(x) * scale

    def normed(self, x):
        print(x.shape)  # found
        return x / x.norm()

model = torch.compile(Net().cuda())
for x in loader:
    loss = model(x.cuda()).sum()
    loss.backward()
    optimizer.step()
"""
_FUNCTION = """
import torch

@torch.compile
def loss_of(a, b):
    print(a.mean())  # found
    return (a - b).abs().mean()

for x, y in loader:
    loss_of(model(x), y).backward()
    optimizer.step()
"""
_QUIET = _COMPILED.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it in a compiled model", _COMPILED),
    SourceCase("finds it in a compiled function", _FUNCTION),
    SourceCase(
        "finds it when it is compiled in place",
        _COMPILED.replace("torch.compile(Net().cuda())", "Net()\nmodel.compile()"),
    ),
    SourceCase("quiet when nothing is compiled", _QUIET.replace("torch.compile(Net().cuda())", "Net().cuda()")),
    SourceCase(
        "quiet when a setting may leave it out",
        _QUIET.replace(
            "model = torch.compile(Net().cuda())", "model = Net()\nif args.compile:\n    model = torch.compile(model)"
        ),
    ),
    SourceCase(
        "quiet when a break would be an error", _QUIET.replace("Net().cuda())", "Net().cuda(), fullgraph=True)")
    ),
    SourceCase(
        "quiet when the compiler is told to stay away",
        _QUIET.replace("    def normed", "    @torch.compiler.disable\n    def normed").replace(".item()", ""),
    ),
    SourceCase(
        "quiet when a pattern is compiled",
        "import re\nword = re.compile('x')\n" + _QUIET.replace("torch.compile(Net().cuda())", "Net()"),
    ),
)
