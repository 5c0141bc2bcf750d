"""How far a step is from what its device can do: a ladder of times, from the step as it is to the device's limit.

- "step": as it is.
- "busy": without waits, the time in which some kernel ran.
- "kernels": with the best kernels at this precision. What multiplies runs at the rate that the device reaches, and all
  else is fused with its neighbours and moves its bytes at the rate of a copy.
- "precision": the same in half precision, where products are in float32 or TF32 now.
- "limit": the arithmetic alone, at the device's best rate.

No rung can be lower than the next, so each is at most the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flatout.records.report import MULTIPLYING, Ladder, Rung, RungName, WorkShare
from flatout.records.roofline import Roofline

# What is left of the bytes between products once they are fused, where their flow was not recorded.
_FUSED = 0.5
# Of the bytes of float32 between products, what half precision moves: statistics and sums stay in float32.
_HALVED = 0.55
# In which other precision a product runs where the roofline has no figure for its own.
_STANDS_IN = {"tf32": "float32", "float16": "bfloat16", "bfloat16": "float16"}
_IN_HALF = {"float32": "bfloat16", "tf32": "bfloat16"}


def make_ladder(
    step_ms: float, busy_ms: float | None, work: Sequence[WorkShare], reached: Roofline, sheet: Roofline | None
) -> Ladder | None:
    """`reached`: what the device was measured to do, else its data sheet. None where its rates are not known."""
    flops = sum(share.flops for share in work)
    if step_ms <= 0 or flops <= 0:
        return None
    at_peak_s = _arithmetic_s(work, (sheet or reached).tflops)
    as_is_s, halved_s = _kernels_s(work, reached, {}), _kernels_s(work, reached, _IN_HALF)
    limit_s = _arithmetic_s(work, reached.tflops, _IN_HALF)
    if at_peak_s is None or as_is_s is None:
        return None
    times: list[tuple[RungName, float | None]] = [
        ("step", step_ms),
        ("busy", busy_ms),
        ("kernels", 1e3 * as_is_s),
        ("precision", None if halved_s is None else 1e3 * halved_s),
        ("limit", None if limit_s is None else 1e3 * limit_s),
    ]
    rungs: list[Rung] = []
    for name, ms in times:
        if ms is not None:
            rungs.append(Rung(name, min(ms, rungs[-1].ms) if rungs else ms))
    return Ladder(
        flops=flops,
        tflops_per_s=1e-9 * flops / step_ms,
        mfu=1e3 * at_peak_s / step_ms,
        peak_source=(sheet or reached).source,
        precision=_main_precision(work),
        gb_per_s=1e-6 * sum(share.bytes for share in work) / (busy_ms or step_ms),
        roofline=reached,
        rungs=tuple(rungs),
    )


def _main_precision(work: Sequence[WorkShare]) -> str:
    """That of most of the arithmetic."""
    totals: dict[str, float] = {}
    for share in work:
        totals[share.precision] = totals.get(share.precision, 0.0) + share.flops
    return max(totals, key=lambda precision: totals[precision])


def _rate(tflops: Mapping[str, float], precision: str) -> float | None:
    return tflops.get(precision) or tflops.get(_STANDS_IN.get(precision, ""))


def _arithmetic_s(
    work: Sequence[WorkShare], tflops: Mapping[str, float], instead: Mapping[str, str] | None = None
) -> float | None:
    """How long the products take at these rates; None where one of them is not known."""
    total_s = 0.0
    for share in work:
        if share.flops:
            rate = _rate(tflops, (instead or {}).get(share.precision, share.precision))
            if rate is None:
                return None
            total_s += 1e-12 * share.flops / rate
    return total_s


def _kernels_s(work: Sequence[WorkShare], reached: Roofline, instead: Mapping[str, str]) -> float | None:
    """Of each kind, the longer of its arithmetic and its bytes."""
    total_s = 0.0
    for share in work:
        narrower = _HALVED if share.precision in instead and share.kind != "optimizer" else 1.0
        if share.kind in MULTIPLYING:
            arithmetic_s = _arithmetic_s([share], reached.tflops, instead)
            if arithmetic_s is None:
                return None
            total_s += max(arithmetic_s, _moved_s(narrower * share.bytes, reached))
        else:
            left = share.fused_bytes if share.fused_bytes is not None else _FUSED * share.bytes
            total_s += _moved_s(narrower * left, reached)
    return total_s


def _moved_s(count: float, reached: Roofline) -> float:
    return 1e-9 * count / reached.memory_gb_s
