"""float32 matrix products run in full precision, without the tensor cores.

What it is: float32 matrix products use the general cores, because torch's default precision for them is "highest". On
cards since Ampere the tensor cores could do them as TF32: same range, 10 bits of mantissa.

Why the GPU idles: it does not; it uses its slow general cores while the tensor cores are idle.

How it shows in a run: the GPU is the bottleneck, the graph is float32, the matmul precision is "highest", and kernels
of matrix products run without tensor cores. Where kernels were not recorded, products are most of the heavy nodes of
the graph, and the tensor cores are active for too little of the time to have done them. Convolutions are not affected:
torch lets them use TF32 by default.

How it shows in source: a training on a GPU whose files nowhere set the precision of float32 products, use no half
precision, and have large products: attention, recurrent layers, or a model without convolutions.

The fix: `torch.set_float32_matmul_precision("high")` at the start of the script. Half precision gains more where it is
allowed: `precision.bf16`, or `precision.fp16` where the card has no bf16.

What to expect: only matrix products gain, by a factor of several on data centre cards and by little on GeForce. Their
share is known from a window over the kernels, else estimated from how busy the device's memory is, within a wide range.

When it is fine: results that need all 23 bits (some physics, some losses); a model without large matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import (
    ACTIVE_IN_PRODUCTS,
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
from flatout.records.report import GpuUse
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import insert_after_imports

CODE = "CO501"
REMEDY = "precision.tf32"
# Above it, products may well be what the tensor cores do.
_AT_WORK = 0.1
_BUSY = 0.3
_MOSTLY = 0.9
# Of the step, in kernels that run without tensor cores; of the heavy nodes that are products, where none were recorded.
_WORTH, _PRODUCTS = 0.05, 0.5
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
    if (float32_share(run) or 0.0) < _MOSTLY:
        return
    products_ms = _products_ms(run, gpu)
    if products_ms is None or products_ms[1] < _WORTH * run.step_ms:
        return
    yield FoundInRun(
        evidence={
            "matmul_precision": "highest",
            "float32_share": round(float32_share(run) or 0.0, 3),
            **({} if gpu.tensor_active is None else {"tensor_active": round(gpu.tensor_active, 4)}),
            **({} if gpu.sm_active is None else {"sm_active": round(gpu.sm_active, 3)}),
            "products_ms_per_step": round(products_ms[1], 2),
        },
        cause=message("co501.cause", tensor_active=gpu.tensor_active, passes_ms=gpu_passes_ms(run), step_ms=run.step_ms)
        if gpu.kernels is None
        else message("co501.cause_kernels", products_ms=products_ms[1], step_ms=run.step_ms),
        change=verbatim(_HIGH),
        edits=_edits(run, products_ms),
    )


def _products_ms(run: Evidence, gpu: GpuUse) -> tuple[float, float, float] | None:
    """Milliseconds of matrix products that run without tensor cores, at least, likely and at most; None: not known."""
    if gpu.kernels is not None:
        products = [kind for kind in gpu.kernels.kinds if kind.kind == "gemm"]
        ms = sum(kind.ms - kind.tensor_core_ms - kind.float64_ms for kind in products)
        return ms, ms, ms
    # Without the counters of the card it cannot be told that tensor cores rest while the others work.
    if gpu.tensor_active is None or gpu.tensor_active >= _AT_WORK or (gpu.sm_active or 0.0) < _BUSY:
        return None
    if float(run.live_torch.get("convolution_share") or 0.0) > 1 - _PRODUCTS:
        return None
    left_ms = gpu_passes_ms(run) - run.step_ms * gpu.tensor_active / ACTIVE_IN_PRODUCTS
    least, likely, most = product_share(run)
    return least * left_ms, likely * left_ms, most * left_ms


def _edits(run: Evidence, products_ms: tuple[float, float, float]) -> Edits | None:
    factor = tf32_factor(run)
    if factor is None:
        return None
    return Edits.between((LessStep(ms * (1 - 1 / factor)),) for ms in products_ms)


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
