"""Convolutions in half precision run in NCHW layout instead of channels_last.

What it is: a convolutional model is trained in bf16 or fp16, so that the tensor cores do the work, but its images and
weights are in NCHW layout (channels first), torch's default. Tensor cores need NHWC (channels last).

Why the GPU idles: it does not; cudnn converts the layout before and after a convolution, or takes a slower kernel, and
what lies between convolutions (norms, activations) reads memory in the less favourable order.

How it shows in a run: the GPU is the bottleneck, most of the heavy nodes of the autograd graph are convolutions, and
their saved tensors, in half precision, have channels first.

How it shows in source: a training in half precision on a GPU, of a model that is mostly convolutions, whose files
never mention `channels_last` and compile nothing.

The fix: `model = model.to(memory_format=torch.channels_last)` after it was moved to the GPU, and `images =
images.to(device, memory_format=torch.channels_last, non_blocking=True)`. The layout then propagates through the whole
model, as long as nothing in it forces another (`view`, `.contiguous()`).

What to expect: it depends on the shapes, the card and the operations between. Cards that count how long their memory
and their tensor cores are active (Hopper and newer) tell how much the kernels lose: well-chosen kernels keep one or
the other active for some 80% of the time. Without these counters no gain is predicted: a trial of a few steps tells.
Rounding differs a little.

When it is fine: few channels, mostly depthwise convolutions, a model that changes its layout all the time, or kernels
that keep memory and tensor cores active as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import (
    HALF,
    MOSTLY_FIRST,
    convolutions_first,
    gpu_passes_ms,
    is_agent_training,
    is_gpu_bound,
    needed_shares,
    unit_activity,
)
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.training.jobs import TrainingJob, find_model_call, nearby_modules, text_pattern

CODE = "CO506"
REMEDY = "layout.channels_last"
_HALF = ("float16", "bfloat16")
# Of the step: passes that are shorter are not what to start with.
_WORTH = 0.5
# What the kernels lose may have other reasons than the layout: so much of it is promised.
_CAUTIOUS = 0.5
# Kernels that lose less than this have no need of another layout.
_LOSE = 0.05


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state = run.live_torch
    # A compiler chooses the layout itself.
    if not is_gpu_bound(run) or state.get("compiled") or gpu_passes_ms(run) < _WORTH * run.step_ms:
        return
    first = convolutions_first(run, _HALF)
    if first < MOSTLY_FIRST:
        return
    part, active = needed_shares(run), unit_activity(run)
    if part is not None and part[1] > 1 - _LOSE:
        return
    yield FoundInRun(
        severity="medium",
        evidence={
            "channels_first_share": round(first, 3),
            "convolution_share": round(float(state["convolution_share"]), 3),
            "device_ms_per_step": round(gpu_passes_ms(run), 2),
            **({} if active is None else {"memory_active": round(active[0], 3), "tensor_active": round(active[1], 3)}),
        },
        cause=message(
            "co506.cause_uncounted" if part is None else "co506.cause",
            share=first,
            passes_ms=gpu_passes_ms(run),
            step_ms=run.step_ms,
        ),
        change=message("co506.change"),
        edits=None if part is None else _edits(gpu_passes_ms(run), part),
    )


def _edits(passes_ms: float, part: tuple[float, float, float]) -> Edits:
    worst_ms, likely_ms, best_ms = (passes_ms * (1 - share) for share in part)
    return Edits.between((LessStep(ms),) for ms in (_CAUTIOUS * worst_ms, likely_ms, best_ms))


_SAID = text_pattern(r"channels_last|\bNHWC\b", "channels_last", "NHWC")
_COMPILED = text_pattern(
    r"torch\.compile\(|torch_compile|\.compile\(\)|tensorrt",
    "torch.compile(",
    "torch_compile",
    ".compile()",
    "tensorrt",
)
_CONVOLUTION = re.compile(r"\bConv(Transpose)?2d\(")
_FAMILIES = "resnet", "resnext", "vgg", "densenet", "efficientnet", "mobilenet", "regnet", "convnext", "unet", "UNet"
_KNOWN = text_pattern(
    rf"\b({'|'.join(_FAMILIES)})\w*\(|create_model\(\s*[\"']({'|'.join(_FAMILIES)})",
    *_FAMILIES,
)
_OTHERWISE = text_pattern(r"[aA]ttention|[tT]ransformer\w*\(|\bvit_|\bViT", "ttention", "ransformer", "vit_", "ViT")
# One or two may be what a transformer cuts its patches with.
_FEW = 2


def in_source(code: Code) -> Iterator[FoundInSource]:
    for job in code.jobs:
        if not job.is_on_gpu or job.says(_SAID) or job.says(_COMPILED):
            continue
        if is_agent_training(job) or not _is_of_convolutions_in_half(job):
            continue
        made = find_model_call(job)
        yield FoundInSource(
            place=job.place if made is None else job.module.place(made),
            cause=message("co506.source_cause"),
            change=message("co506.change"),
            severity="hint",
        )


def _is_of_convolutions_in_half(job: TrainingJob) -> bool:
    files = nearby_modules(job)
    if not any(job.texts.say(HALF, file) for file in files) or any(job.texts.say(_OTHERWISE, file) for file in files):
        return False
    written = sum(len(_CONVOLUTION.findall(file.text)) for file in files)
    return written > _FEW or any(job.texts.say(_KNOWN, file) for file in files)
