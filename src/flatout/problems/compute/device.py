"""What the GPU's time consists of, and what its tensor cores could make of it; what a training's text says of that.

Shared by the problems of compute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import mean

from flatout.model.edits import Edit, LessDevice, LessHost
from flatout.records.evidence import Evidence, NeedlessCall
from flatout.records.ledger import SCRIPT
from flatout.records.report import Location
from flatout.source.training.jobs import TrainingJob, text_pattern

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
# While a matrix product runs, its tensor cores are active for about this part of the time, between loads and stores.
ACTIVE_IN_PRODUCTS = 0.6
# Of convolutions and matrix products together, and of the convolutions that tensor cores can take.
_OF_CONVOLUTIONS, MOSTLY_FIRST = 0.5, 0.7
# Cards for computing centres have half as many units for float64 as for float32, and tensor cores that do its products
# at the rate of float32. All others have a 32nd (to Turing) or a 64th. At least, likely and at most.
_FLOAT64_UNITS = re.compile(r"\b(P100|V100|A100|A800|A30|H100|H200|H800|GH200|B100|B200|GB200|MI\d+\w*)\b")
_FLOAT64_FULL, _FLOAT64_CUT = (1.0, 1.5, 2.0), (8.0, 24.0, 64.0)
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


def float64_factor(run: Evidence) -> tuple[float, float, float]:
    """How much faster this card does a matrix product in float32 than in float64: at worst, likely and at best.

    Tensor cores do float32 where the script lets them (TF32, autocast), several times as fast.
    """
    least, likely, most = _FLOAT64_FULL if _FLOAT64_UNITS.search(run.report.run.device) else _FLOAT64_CUT
    faster = tf32_factor(run)
    kernels = None if run.report.gpu is None else run.report.gpu.kernels
    on_cores = 0.0 if kernels is None else sum(kind.tensor_core_ms - kind.float64_ms for kind in kernels.kinds)
    if faster is None or (run.live_torch.get("matmul_precision") in (None, "highest") and on_cores <= 0):
        return least, likely, most
    return likely, faster, faster * most


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


def convolutions_first(run: Evidence, dtypes: Sequence[str] = ("float32", "float16", "bfloat16")) -> float:
    """Of the convolutions that tensor cores can take, those in these types that are known to have channels first; 0 for
    a model that is mostly other products.
    """
    state = run.live_torch
    layouts, share = state.get("convolution_layouts"), float(state.get("convolution_share") or 0.0)
    if not isinstance(layouts, dict) or share < _OF_CONVOLUTIONS:
        return 0.0
    return sum(float(layouts.get(f"channels_first {dtype}", 0.0)) for dtype in dtypes)


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


def model_ms(run: Evidence, phase: str) -> float:
    """Of a phase on the training thread, without what the script does in it beside the model."""
    beside = [entry for entry in run.ledger.entries if entry.part in SCRIPT or entry.part == "waiting"]
    return max(0.0, run.phase(phase).ms - sum(entry.ms for entry in beside if entry.phase == phase))


def within_line(run: Evidence, location: Location, once_ms: float) -> tuple[float, float]:
    """Milliseconds of forward and of backward, where either spares so much once: no more than the line takes."""
    costs = [cost for cost in run.op_costs if cost.location == location]
    forward_ms, backward_ms = sum(cost.forward_ms for cost in costs), sum(cost.backward_ms or 0.0 for cost in costs)
    return min(once_ms, forward_ms), min(once_ms, backward_ms)


def spare_passes(
    run: Evidence, forward_ms: float, backward_ms: float, device_ms: float | None = None
) -> tuple[Edit, ...]:
    """So much less of either pass on the training thread, and of the device's work what was recorded for it.

    Where nothing was recorded, the same part of the device's pass.
    """
    parts = {"forward": forward_ms, "backward": backward_ms}
    edits: list[Edit] = [LessHost(ms, phase, is_sampled=False) for phase, ms in parts.items() if ms > 0]
    gpu = run.report.gpu
    if run.on_gpu and gpu is not None:
        host_ms = {phase: run.phase(phase).ms for phase in parts}
        same_part_ms = sum(
            min(1.0, ms / host_ms[phase]) * gpu.device_ms.get(phase, 0.0)
            for phase, ms in parts.items()
            if host_ms[phase] > 0
        )
        edits.append(LessDevice(same_part_ms if device_ms is None else device_ms))
    return tuple(edits)


def recorded_ms(calls: Sequence[NeedlessCall]) -> tuple[float, float] | None:
    """What the device does for these calls, forward and backward; None: not recorded."""
    known = [call.device_ms for call in calls if call.device_ms is not None]
    return (sum(ms for ms, _ in known), sum(ms for _, ms in known)) if known else None


def line_device_ms(run: Evidence, location: Location) -> float | None:
    """What the device does in a step for what this line launches, backward included; None: not recorded."""
    gpu = run.report.gpu
    if gpu is None or gpu.kernels is None:
        return None
    return sum(line.ms for line in gpu.kernels.lines if line.location == location)


# Patterns in the text of a training: its precision, and the kind of model it computes.


# Half precision in any form; a script that offers it as an option has considered it.
HALF = text_pattern(
    r"autocast|GradScaler|\bamp\b|\bapex\b|_amp\b|\bamp_|\bAMP\b|[fF][pP]_?16|[bB][fF]16|float16|FLOAT16"
    r"|mixed_precision|half_precision|\.half\(|\bload_in_[48]bit",
    "autocast", "GradScaler", "amp.", "amp_", "_amp", " amp", "-amp", ".amp", "(amp", '"amp', "'amp", "AMP",
    "apex", "p16", "p_16", "P16", "f16", "F16", "float16", "FLOAT16", "mixed_precision",
    "half_precision", ".half(", "load_in_",
)  # fmt: skip
# The precision of float32 products is set.
DECIDED = text_pattern(
    r"set_float32_matmul_precision|allow_tf32|fp32_precision|\btf32\b|TF32_OVERRIDE",
    "set_float32_matmul_precision", "tf32", "fp32_precision", "TF32_OVERRIDE",
)  # fmt: skip
# Results that need more than float32 do not allow less.
WIDE = text_pattern(
    r"torch\.(float64|double|complex\d+)\b|\.double\(\)|set_default_dtype|DoubleTensor",
    "torch.float64", "torch.double", "torch.complex", ".double()", "set_default_dtype", "DoubleTensor",
)  # fmt: skip
_CONVOLUTIONS = text_pattern(
    r"\bConv2d\(|\bConvTranspose2d\(|torchvision\.models|\bresnet\w*\(|\bsmp\.|efficientnet",
    "Conv2d(", "ConvTranspose2d(", "torchvision.models", "resnet", "smp.", "efficientnet",
)  # fmt: skip
_PRODUCTS = text_pattern(
    r"[aA]ttention|[tT]ransformer|\bLSTM\b|\bGRU\b|einsum|\bbmm\b|matmul|\.mm\(|\bBert|\bGPT|diffusers|\bvit_",
    "ttention", "ransformer", "LSTM", "GRU", "einsum", "bmm", "matmul", ".mm(", "Bert", "GPT", "diffusers", "vit_",
)  # fmt: skip
_LINEAR = text_pattern(r"\bLinear\(", "Linear(")
# Reinforcement learning: networks are small, and a step is bound by launches, not by products.
_AGENT = text_pattern(
    r"\bgym(nasium)?\b|\benvs?\.(step|reset)\(|[rR]eplay_?[bB]uffer|rollout_buffer",
    "gym", "env.", "envs.", "eplay", "rollout_buffer",
)  # fmt: skip


def is_agent_training(job: TrainingJob) -> bool:
    return job.says(_AGENT)


def has_large_products(job: TrainingJob) -> bool:
    """Are there matrix products beside the last layer of a convolutional network? Convolutions use TF32 by default."""
    return job.says(_PRODUCTS) or (job.says(_LINEAR) and not job.says(_CONVOLUTIONS))
