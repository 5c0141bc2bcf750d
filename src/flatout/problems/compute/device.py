"""What the GPU's time consists of, and what its tensor cores could make of it. Shared by the problems of compute."""

from __future__ import annotations

import re
from statistics import mean

from flatout.records.evidence import Evidence

# A GPU whose queue is found empty more often, or that starves longer, is not the bottleneck.
_SELDOM_DRAINED = 0.3
_HARDLY_STARVED = 0.1
_MOSTLY_BUSY = 0.6
# Kernels that only move memory keep it this busy; matrix products leave it mostly alone.
_DRAM_MOVING, _DRAM_PRODUCTS = 0.8, 0.15
# What TF32 and bf16 make of a large float32 matrix product in practice: 7.3 times was measured on an H200, a little
# less than the ratio of the peak rates; products of small sizes gain less. GeForce and its
# relatives do TF32 at the rate of float32.
_TF32 = (
    (re.compile(r"\b(A100|A800|A30|H100|H200|H800|H20|GH200|B100|B200|GB200|B300|GB300)\b"), 7.0),
    (re.compile(r"\b(A10G?|A40|A16|A2|L4|L40S?|RTX A\d000|RTX \d000 Ada|RTX PRO \d000)\b"), 1.6),
    (re.compile(r"\bRTX (30|40|50)\d0\b"), 1.25),
)
_BF16_OVER_TF32 = 1.8
# While its processors are at work, well-chosen kernels keep memory or tensor cores active for about this part of the
# time, both together: 0.69 to 1.06 in six healthy trainings on an H200 (transformers, products, convolutions with
# channels last; bf16 and TF32). With fewer processors at work the kernels are small, and wait for other things.
_REACHED = (0.7, 0.8, 0.95)
_AT_WORK = 0.5


def is_gpu_bound(run: Evidence) -> bool:
    """Is the GPU's own work the bottleneck? Only where it was measured."""
    gpu = run.report.gpu
    if not run.on_gpu or gpu is None or gpu.drained_share is None:
        return False
    if gpu.busy_share is not None and gpu.busy_share < _MOSTLY_BUSY:
        return False
    return gpu.drained_share < _SELDOM_DRAINED and run.starved_ms < _HARDLY_STARVED * run.step_ms


def tf32_factor(run: Evidence) -> float | None:
    """How much faster TF32 makes a matrix product on this card; None for one without, or one not known."""
    name = run.report.run.device
    return next((factor for pattern, factor in _TF32 if pattern.search(name)), None)


def bf16_factor(run: Evidence) -> float | None:
    """The same for bf16 against TF32."""
    return _BF16_OVER_TF32 if tf32_factor(run) is not None else None


def product_share(run: Evidence) -> tuple[float, float, float]:
    """Which part of the device's work matrix products can be, at least, likely and at most.

    Kernels either wait for memory or compute. The mean activity of memory tells how much of the time is which.
    """
    seen = [state.dram_active for state in run.gpus if state.dram_active is not None]
    if not seen:
        return 0.2, 0.5, 0.9
    share = (_DRAM_MOVING - mean(seen)) / (_DRAM_MOVING - _DRAM_PRODUCTS)
    likely = min(0.96, max(0.0, share))
    return 0.5 * likely, likely, min(0.98, 1.2 * likely)


def float32_share(run: Evidence) -> float | None:
    """Of the results in the autograd graph, those in float32; None where none was inspected."""
    dtypes = run.live_torch.get("grad_dtypes")
    return float(dtypes.get("float32", 0.0)) if isinstance(dtypes, dict) and dtypes else None


def gpu_passes_ms(run: Evidence) -> float:
    """Milliseconds a step in which kernels of forward and backward run; of wall time where no device was timed."""
    gpu = run.report.gpu
    timed = {} if gpu is None else gpu.device_ms
    if "forward" not in timed or "backward" not in timed:
        return run.phase("forward").ms + run.phase("backward").ms
    passes_ms = min(run.step_ms, timed["forward"] + timed["backward"])
    # The device's timeline has the gaps between kernels in it.
    busy = None if gpu is None else gpu.busy_share
    return passes_ms if busy is None else min(passes_ms, busy * run.step_ms)


def unit_activity(run: Evidence) -> tuple[float, float] | None:
    """How far memory and tensor cores were active while the device's processors were at work, 0..1 each.

    None where the card does not count this, or so few processors are at work that it says nothing.
    """
    gpu = run.report.gpu
    memory = [state.dram_active for state in run.gpus if state.dram_active is not None]
    if gpu is None or gpu.tensor_active is None or not memory or (gpu.sm_active or 0.0) < _AT_WORK:
        return None
    at_work = gpu.sm_active or 1.0
    return mean(memory) / at_work, gpu.tensor_active / at_work


def needed_shares(run: Evidence) -> tuple[float, float, float] | None:
    """The part of its time that the device would need with well-chosen kernels: at worst, likely and at best.

    Kernels come down to moving memory or to multiplying on tensor cores. What is left of the time goes to those that do
    neither well, whatever they wait for. None where it was not measured.
    """
    active = unit_activity(run)
    if active is None:
        return None
    worst, likely, best = (min(1.0, sum(active) / reached) for reached in _REACHED)
    return worst, likely, best
