"""No part of the model is compiled: every operation is a kernel of its own.

What it is: torch launches every operation of forward and backward as a kernel of its own. `torch.compile` could fuse
most of those between the large products.

Why the GPU idles: small kernels finish before the host has launched the next ones; large elementwise kernels (norms,
activations, losses) read and write all of the memory each time, and the arithmetic units wait.

How it shows in a run: the GPU is the bottleneck, and kernels that only move memory (elementwise work, norms, sums,
copies) take a good part of its time. Where the operations of a step were recorded, so is how many bytes would be left
if neighbours were fused.

How it shows in source: a training on a GPU whose files nowhere compile, script or capture anything.

The fix: `model.compile()` once the model is on its device. It works in place, so the names in a checkpoint stay as
they are; `model = torch.compile(model)` puts `_orig_mod.` before them.

What to expect: the bytes that fusing saves, from nothing to a third of the step; more for many small operations. The
first steps take a minute or so longer. Rounding differs a little. A trial of a few hundred steps tells.

When it is fine: inputs whose shapes change all the time (each new shape recompiles), code with graph breaks in every
layer, runs of a few minutes, or a step that waits for its data anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.report import MOVING, GpuUse, KernelKind
from flatout.source.code import Code
from flatout.source.training.jobs import text_pattern

CODE = "CO509"
REMEDY = "compile.model"
# Of the time of a kind, what fusing spares where it was not recorded what operations make: at worst, likely, at best.
_SPARED = (0.2, 0.4, 0.65)
# Of what the bytes promise: some neighbours are not fused, and fused kernels may reach more of the memory's rate.
_REACHED = (0.6, 1.0, 1.3)
# Of the step; less is not worth a minute of compiling.
_WORTH = 0.05

_COMPILED = text_pattern(
    r"torch\.compile|torch_compile|(?<!\bre)\.compile\(|\bcompile(_model|_mode)?\b\s*[=:]|--compile|import compile\b"
    r"|torch\.jit|\bjit\.(script|trace)|dynamo|[cC][uU][dD][aA]_?[gG]raph|make_graphed|torch_tensorrt|\bthunder\b",
    "compile", "torch.jit", "jit.", "dynamo", "raph", "torch_tensorrt", "thunder",
)  # fmt: skip
# Graphs and point clouds have another shape in each batch: all would be compiled again and again.
_SHAPELESS = text_pattern(
    r"torch_geometric|\bdgl\b|torch_sparse|torch_scatter|MinkowskiEngine|spconv|pack_padded_sequence|nested_tensor",
    "torch_geometric", "dgl", "torch_s", "MinkowskiEngine", "spconv", "pack_padded_sequence", "nested_tensor",
)  # fmt: skip


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    gpu = run.report.gpu
    if gpu is None or gpu.kernels is None or run.live_torch.get("compiled") or not is_gpu_bound(run):
        return
    moving_ms, spared_ms = gpu.kernels.ms_of(*MOVING), _spared_ms(gpu)
    if spared_ms[1] < _WORTH * run.step_ms:
        return
    yield FoundInRun(
        evidence={"memory_bound_ms_per_step": round(moving_ms, 2), "fusing_spares_ms": round(spared_ms[1], 2)},
        cause=message("co509.cause", moving_ms=moving_ms, step_ms=run.step_ms, share=moving_ms / run.step_ms),
        change=message("co509.source_change"),
        edits=Edits.between((LessStep(ms),) for ms in spared_ms),
    )


def _spared_ms(gpu: GpuUse) -> tuple[float, float, float]:
    """Milliseconds of kernels that only move memory, at worst, likely and at best."""
    if gpu.kernels is None:
        return 0.0, 0.0, 0.0
    totals = [0.0, 0.0, 0.0]
    for kind in MOVING:
        ms, saved = gpu.kernels.ms_of(kind), _saved_share(gpu, kind)
        for place in range(3):
            totals[place] += ms * (_SPARED[place] if saved is None else _REACHED[place] * saved)
    worst, likely, best = totals
    return worst, likely, best


def _saved_share(gpu: GpuUse, kind: KernelKind) -> float | None:
    """Of the bytes of a kind, those that fusing saves; None where that was not recorded."""
    shares = [share for share in gpu.work if share.kind == kind]
    moved = sum(share.bytes for share in shares)
    if not moved or any(share.fused_bytes is None for share in shares):
        return None
    return max(0.0, 1.0 - sum(share.fused_bytes or 0.0 for share in shares) / moved)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for job in code.jobs:
        if not job.is_on_gpu or job.is_launched or job.says(_COMPILED) or job.says(_SHAPELESS):
            continue
        if job.is_given("torch_compile", "args"):
            continue
        yield FoundInSource(
            place=job.place,
            cause=message("co509.source_cause"),
            change=verbatim("torch_compile=True") if job.kind == "transformers" else message("co509.source_change"),
            severity="hint",
        )
