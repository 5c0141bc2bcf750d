"""The model computes in float64.

What it is: weights and activations are in float64: the model was made so (`model.double()`,
`torch.set_default_dtype(torch.float64)`), or followed arrays of numpy, whose default it is.

Why the GPU idles: it does not; it computes more digits than a training usually needs. Every value takes twice the
bytes, a processor takes half as many at once, and most GPUs have a 32nd or a 64th as many units for float64.

How it shows in a run: results in the autograd graph are in float64, by the number of their elements. On a CPU a product
and a sum of the sizes of this model were timed in both types when the run ended. On a GPU whose kernels were recorded
those in float64 are told by their names, with the time they take: one product of a loss may be a third of the step.

The fix: make the model and what it is given float32: leave out `.double()`, and give arrays of numpy their type when
they become tensors: `torch.from_numpy(x).float()`.

What to expect: half of the time where memory or the processor's units are the limit, less with small operations. Losses
differ from the seventh digit on.

When it is fine: the method needs these digits: a solver with tight tolerances, second derivatives of a residual, a
matrix that is nearly singular. Then keep float64 for that part, and the rest in float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edit, Edits, LessHost, LessStep
from flatout.problems.compute.device import float64_factor, gpu_passes_ms, is_gpu_bound, model_ms, product_share
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.hot_lines import lines_in
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import MULTIPLYING

CODE = "CO516"
_PASSES = ("forward", "backward", "optimizer")
# Of what only moves memory: half the bytes.
_HALF = 2.0
# Where nothing was timed: half the bytes and twice the lanes at best, calls that take as long as before at worst.
_UNTIMED = (1.0, 1.5, _HALF)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    share = _share_of_kernels(run) or _float64_share(run)
    if share is None or share * _passes_ms(run) < WORTH * run.step_ms or (run.on_gpu and not is_gpu_bound(run)):
        return
    factors = run.live_torch.get("float64_factors")
    timed = {f"{name}_factor": float(value) for name, value in factors.items()} if isinstance(factors, dict) else {}
    # Else of the forward pass: the model's call, or a line within it.
    made_at, dearest = run.float64_at, max(lines_in(run, "forward"), key=lambda line: line.ms, default=None)
    yield FoundInRun(
        location=made_at or (None if dearest is None else dearest.location),
        evidence={"float64_share": round(share, 3), "passes_ms_per_step": round(_passes_ms(run), 2), **timed},
        cause=message("co516.cause", share=share, passes_ms=_passes_ms(run), step_ms=run.step_ms),
        change=message("co516.change" if made_at is None else "co516.change_there"),
        edits=Edits.between((_on_gpu if run.on_gpu else _on_cpu)(run, share)),
    )


def _float64_share(run: Evidence) -> float | None:
    """Of the elements of all results in the graph; an older recording has the number of results alone."""
    state = run.live_torch
    shares = state.get("grad_elements") or state.get("grad_dtypes")
    share = float(shares.get("float64", 0.0)) if isinstance(shares, dict) else 0.0
    return share or None


def _share_of_kernels(run: Evidence) -> float | None:
    """Of the time of a step's kernels, where they were recorded."""
    kernels = None if run.report.gpu is None else run.report.gpu.kernels
    if kernels is None or not kernels.busy_ms:
        return None
    return min(1.0, sum(kind.float64_ms for kind in kernels.kinds) / kernels.busy_ms) or None


def _passes_ms(run: Evidence) -> float:
    if run.on_gpu and run.report.gpu is not None and run.report.gpu.kernels is not None:
        return min(run.step_ms, run.report.gpu.kernels.busy_ms)
    if run.on_gpu:
        gpu = run.report.gpu
        return gpu_passes_ms(run) + (0.0 if gpu is None else gpu.device_ms.get("optimizer", 0.0))
    return sum(model_ms(run, phase) for phase in _PASSES)


def _on_cpu(run: Evidence, share: float) -> list[tuple[Edit, ...]]:
    """By the two factors that were timed: how much of the time is products is not known."""
    timed = run.live_torch.get("float64_factors")
    known = sorted(float(value) for value in timed.values()) if isinstance(timed, dict) and timed else []
    factors = (known[0], (known[0] * known[-1]) ** 0.5, known[-1]) if known else _UNTIMED
    parts = [share * max(0.0, 1 - 1 / factor) for factor in factors]
    return [
        tuple(LessHost(part * model_ms(run, phase), phase, is_sampled=False, of_model=True) for phase in _PASSES)
        for part in parts
    ]


def _on_gpu(run: Evidence, share: float) -> list[tuple[Edit, ...]]:
    """Products by what the card's units do in either type, the rest by its bytes."""
    ms, products = share * _passes_ms(run), float64_factor(run)
    shares = _share_of_products(run) or product_share(run)
    saved = [
        part * (1 - 1 / faster) + (1 - part) * (1 - 1 / _HALF) for part, faster in zip(shares, products, strict=True)
    ]
    return [(LessStep(ms * part),) for part in sorted(saved)]


def _share_of_products(run: Evidence) -> tuple[float, float, float] | None:
    """Of the time of kernels in float64, that of products, where kernels were recorded."""
    kernels = None if run.report.gpu is None else run.report.gpu.kernels
    known = [] if kernels is None else [kind for kind in kernels.kinds if kind.float64_ms]
    if not known:
        return None
    products_ms = sum(kind.float64_ms for kind in known if kind.kind in MULTIPLYING)
    return (products_ms / sum(kind.float64_ms for kind in known),) * 3
