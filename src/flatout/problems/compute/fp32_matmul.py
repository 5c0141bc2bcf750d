"""float32 matrix products run in full precision, without the tensor cores.

What it is: float32 matrix products use the general cores, because torch's default precision for them is "highest". On
cards since Ampere the tensor cores could do them as TF32: same range, 10 bits of mantissa.

Why the GPU idles: it does not; it uses its slow general cores while the tensor cores are idle.

How it shows in a run: the GPU is the bottleneck, the graph is float32, the matmul precision is "highest", and the
tensor cores are hardly ever active. Convolutions are not affected: torch lets them use TF32 by default.

How it shows in source: a training on a GPU whose files nowhere set the precision of float32 products, use no half
precision, and have large products: attention, recurrent layers, or a model without convolutions.

The fix: `torch.set_float32_matmul_precision("high")` at the start of the script. Half precision gains more where it is
allowed: `precision.bf16`, or `precision.fp16` where the card has no bf16.

What to expect: only matrix products gain, by a factor of several on data centre cards and by little on GeForce. Their
share is estimated from how busy the device's memory is, so the range is wide.

When it is fine: results that need all 23 bits (some physics, some losses); a model without large matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import (
    DECIDED,
    HALF,
    WIDE,
    float32_share,
    gpu_passes_ms,
    has_large_products,
    is_agent_training,
    is_gpu_bound,
    product_share,
    tf32_factor,
)
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import insert_after_imports

CODE = "CO501"
REMEDY = "precision.tf32"
_TENSOR_CORES_REST = 0.02
_BUSY = 0.3
_MOSTLY = 0.9
_HIGH = 'torch.set_float32_matmul_precision("high")'


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state, gpu = run.live_torch, run.report.gpu
    if (
        gpu is None
        or not is_gpu_bound(run)
        or state.get("matmul_precision") != "highest"
        or state.get("matmul_allow_tf32")
    ):
        return
    # Without the counters of the card it cannot be told that tensor cores rest while the others work.
    if gpu.tensor_active is None or gpu.tensor_active > _TENSOR_CORES_REST or (gpu.sm_active or 0.0) < _BUSY:
        return
    if (float32_share(run) or 0.0) < _MOSTLY:
        return
    yield FoundInRun(
        evidence={
            "matmul_precision": "highest",
            "float32_share": round(float32_share(run) or 0.0, 3),
            "tensor_active": round(gpu.tensor_active, 4),
            "sm_active": round(gpu.sm_active or 0.0, 3),
            "product_share_likely": round(product_share(run)[1], 2),
        },
        cause=message(
            "co501.cause", tensor_active=gpu.tensor_active, passes_ms=gpu_passes_ms(run), step_ms=run.step_ms
        ),
        change=verbatim(_HIGH),
        edits=_edits(run),
    )


def _edits(run: Evidence) -> Edits | None:
    factor = tf32_factor(run)
    if factor is None:
        return None
    part_ms = gpu_passes_ms(run) * (1 - 1 / factor)
    return Edits.between((LessStep(part_ms * share),) for share in product_share(run))


def in_source(code: Code) -> Iterator[FoundInSource]:
    for job in code.jobs:
        if not job.is_on_gpu or any(job.says(pattern) for pattern in (DECIDED, HALF, WIDE)):
            continue
        if job.is_given("tf32", "bf16", "fp16", "precision") or is_agent_training(job):
            continue
        if not has_large_products(job):
            continue
        edit = insert_after_imports(job.module, _HIGH)
        words = message("fix.add_after_imports", code=_HIGH)
        yield FoundInSource(
            place=job.place,
            cause=message("co501.source_cause"),
            change=message("co501.source_change"),
            severity="hint",
            fix=None if edit is None else Fix(words, (edit,), is_safe=False),
        )
