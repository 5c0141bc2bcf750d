"""Convolutions in half precision run with channels first.

What it is: a model of convolutions is trained in bf16 or fp16, so that the tensor cores do the work, but its images
and weights lie in memory with the channels first (NCHW), torch's default. Tensor cores take channels last (NHWC).

Why the GPU idles: it does not; cudnn turns the data around before and after a convolution, or takes a slower kernel,
and what lies between convolutions (norms, activations) reads memory in the less favourable order.

How it shows in a run: the device binds, most of the heavy nodes of the autograd graph are convolutions, and what they
have saved, in half precision, lies with channels first.

The fix: `model = model.to(memory_format=torch.channels_last)` after it was moved to the device, and
`images = images.to(device, memory_format=torch.channels_last, non_blocking=True)`. The layout then goes through the
whole model, as long as nothing in it forces another (`view`, `.contiguous()`).

What to expect: it depends on the shapes, the card and the operations between, from nothing to a good part of the
passes; rounding differs a little. Nothing in a run with channels first tells how much, so no gain is promised: a
trial of a few steps does.

When it is fine: few channels, mostly depthwise convolutions, or a model that changes its layout all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.problems.cases import Case, on_gpu, run
from flatout.problems.compute.device import binds, torch_state, trained_ms
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.report import GpuUse

CODE = "CO506"
TITLE = "Convolutions in half precision run with channels first"
REMEDY = "layout.channels_last"
_HALF = ("float16", "bfloat16")
# Of convolutions and matrix products together; and of the convolutions that tensor cores can take.
_DOMINATE, _MOSTLY = 0.5, 0.7
# Of the step: passes that are shorter are not what to start with.
_WORTH = 0.5


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state = torch_state(run)
    # A compiler chooses the layout itself.
    if not binds(run) or state.get("compiled") or trained_ms(run) < _WORTH * run.step_ms:
        return
    first, share = _half_first(state), state.get("convolution_share")
    if first < _MOSTLY or share is None or float(share) < _DOMINATE:
        return
    gpu = run.report.gpu
    active = {} if gpu is None or gpu.tensor_active is None else {"tensor_active": round(gpu.tensor_active, 3)}
    yield FoundInRun(
        severity="medium",
        location=None,
        evidence={
            "channels_first_share": round(first, 3),
            "convolution_share": round(float(share), 3),
            "device_ms_per_step": round(trained_ms(run), 2),
            **active,
        },
        cause=f"{first:.0%} of the convolutions that tensor cores can take run in half precision with channels first,"
        f" on a device that computes for {trained_ms(run):.3g} of each {run.step_ms:.3g} ms step",
        change="model.to(memory_format=torch.channels_last), and the images likewise",
        predicted_gain=None,
    )


def _half_first(state: dict[str, Any]) -> float:
    """The part of the convolutions in question that are in half precision and known to have channels first."""
    layouts = state.get("convolution_layouts")
    if not isinstance(layouts, dict):
        return 0.0
    return sum(float(layouts.get(f"channels_first {dtype}", 0.0)) for dtype in _HALF)


def _case(name: str, found: bool, gpu: GpuUse | None = None, **state: object) -> Case:
    known: dict[str, object] = {
        "matmul_precision": "high",
        "grad_dtypes": {"bfloat16": 0.9, "float32": 0.1},
        "convolution_layouts": {"channels_first bfloat16": 1.0},
        "convolution_share": 0.95,
        **state,
    }
    live = {"torch": known, "loaders": [], "optimizers": []}
    return Case(name, run(gpu=gpu or on_gpu(), live=live), found)


CASES = (
    _case("finds it when a network under autocast has channels first", found=True),
    _case("finds it in fp16", found=True, convolution_layouts={"channels_first float16": 0.9, "unknown float16": 0.1}),
    _case("quiet when channels are last", found=False, convolution_layouts={"channels_last bfloat16": 1.0}),
    _case("quiet in float32", found=False, convolution_layouts={"channels_first float32": 1.0}),
    _case("quiet when the layout is not known", found=False, convolution_layouts={"unknown bfloat16": 1.0}),
    _case("quiet when a transformer begins with one convolution", found=False, convolution_share=0.02),
    _case("quiet when the host binds", found=False, gpu=on_gpu(drained_share=0.7)),
    _case("quiet when a compiler chooses", found=False, compiled=True),
)
