"""Training runs in float32 with TF32 where bf16 mixed precision would be faster.

What it is: the model is trained in float32; its matrix products and convolutions already use the tensor cores, as
TF32. In bf16 they would do twice as much in the same time, and every activation would take half the memory traffic.

Why the GPU idles: it does not; it takes longer than it has to.

How it shows in a run: the GPU is the bottleneck, the graph is float32, and the tensor cores are active for a good part
of the time.

How it shows in source: a training on a GPU whose files never mention autocast, a gradient scaler, fp16 or bf16.
Nothing is reported where a launcher with a config of its own (accelerate, DeepSpeed) may set it.

The fix: `with torch.autocast("cuda", dtype=torch.bfloat16):` around the forward pass and the loss; no gradient scaler
is needed for bf16. From outside `precision.bf16` does that, and `precision.fp16` with a scaler where the card has no
bf16.

What to expect: half of the time in which the tensor cores are active, and part of the time in which memory is:
activations take half the bytes, weights and what stays in float32 do not. A model of convolutions is expected to be
laid out with the channels last as well (CO506): without that, half precision mostly adds conversions. Where the card
does not count how long its memory is active, the rest of forward and backward is assumed to gain from the smaller
tensors.

When it is fine: a loss or a custom kernel that needs float32: leave these outside the region.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import (
    ACTIVE_IN_PRODUCTS,
    HALF,
    MOSTLY_FIRST,
    WIDE,
    bf16_factor,
    convolutions_first,
    float32_share,
    gpu_passes_ms,
    is_agent_training,
    is_gpu_bound,
    needed_shares,
    unit_activity,
)
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import add_keyword
from flatout.source.training.jobs import TrainingJob

CODE = "CO502"
REMEDY = "precision.bf16"
COMES_FROM = ("CO501",)
_MOSTLY = 0.95
# What half the bytes make of the kernels beside the products: of those that only move memory nearly twice the speed,
# but some stay in float32 and casts are added.
_REST_FASTER = 1.5
# By how much shorter memory and tensor cores are active in bf16: these at twice the rate, that with half the bytes for
# activations only.
_MEMORY_SHORTER, _TENSOR_SHORTER = 1.6, 2.0
# A step shorter than this is soon bound by its launches, which autocast only adds to.
_SHORT_MS = 10.0
_AT_WORK = 0.1


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    gpu = run.report.gpu
    if gpu is None or not is_gpu_bound(run) or (gpu.tensor_active or 0.0) < _AT_WORK:
        return
    if (float32_share(run) or 0.0) < _MOSTLY or run.live_torch.get("default_dtype") not in (None, "float32"):
        return
    yield FoundInRun(
        evidence={
            "float32_share": round(float32_share(run) or 0.0, 3),
            "tensor_active": round(gpu.tensor_active or 0.0, 3),
            "device_ms_per_step": round(gpu_passes_ms(run), 2),
        },
        cause=message("co502.cause", tensor_active=gpu.tensor_active),
        change=message("co502.change"),
        edits=_edits(run, gpu.tensor_active or 0.0),
    )


def _edits(run: Evidence, active: float) -> Edits | None:
    factor = bf16_factor(run)
    if factor is None:
        return None
    by_counters = _by_counters(run)
    if by_counters is not None:
        return by_counters
    passes_ms = gpu_passes_ms(run)
    products_ms = min(1.0, active * run.step_ms / (ACTIVE_IN_PRODUCTS * passes_ms)) * passes_ms
    rest_ms = passes_ms - products_ms
    saved_ms = products_ms * (1 - 1 / factor)
    more_ms = rest_ms * (1 - 1 / _REST_FASTER)
    likely_ms = (saved_ms + more_ms) * min(1.0, run.step_ms / _SHORT_MS)
    best = (LessStep(passes_ms * (1 - 1 / factor)),)
    return Edits((LessStep(likely_ms),), worst=(LessStep(0.5 * saved_ms),), best=best)


def _by_counters(run: Evidence) -> Edits | None:
    """From how long memory and tensor cores are active, where the card counts both."""
    active, part = unit_activity(run), needed_shares(run)
    if active is None or part is None:
        return None
    memory, tensor = active
    passes_ms = gpu_passes_ms(run) * min(1.0, run.step_ms / _SHORT_MS)
    least = (memory + tensor / _TENSOR_SHORTER) / sum(active)
    likely = (memory / _MEMORY_SHORTER + tensor / _TENSOR_SHORTER) / sum(active)
    # The kernels for bf16 may also be the better chosen ones; those of convolutions are with the channels last.
    shares = (least, likely, likely * part[1])
    if convolutions_first(run) >= MOSTLY_FIRST:
        shares = (likely, likely * part[1], likely * part[2])
    return Edits.between((LessStep(passes_ms * (1 - share)),) for share in shares)


_KEYWORDS = {"lightning": 'precision="bf16-mixed"', "transformers": "bf16=True"}


def in_source(code: Code) -> Iterator[FoundInSource]:
    for job in code.jobs:
        if not job.is_on_gpu or job.is_launched or job.says(HALF) or job.says(WIDE):
            continue
        if job.is_given("precision", "bf16", "fp16", "plugins", "args") or is_agent_training(job):
            continue
        keyword = _KEYWORDS.get(job.kind)
        yield FoundInSource(
            place=job.place,
            cause=message("co502.source_cause"),
            change=message("co502.change") if keyword is None else verbatim(keyword),
            severity="hint",
            fix=_fix(job, keyword),
            title=message("co502.source_title"),
        )


def _fix(job: TrainingJob, keyword: str | None) -> Fix | None:
    """Of a framework's trainer; in a loop it is not known where forward and loss begin and end."""
    if keyword is None or not isinstance(job.node, ast.Call):
        return None
    edit = add_keyword(job.module, job.node, keyword)
    return None if edit is None else Fix(message("fix.add", code=keyword), (edit,), is_safe=False)
