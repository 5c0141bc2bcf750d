"""What ran on the device in a step: kernels by kind and by line, from the window that recorded them.

A kernel is known by nothing but its name, so its kind is read off that: of libraries and of torch itself. What the
optimizer launches is the optimizer's, whatever it is called.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.diagnose.ranks import Rank, told
from flatout.records.report import MULTIPLYING, KernelKind, KernelLine, KernelShare, KernelUse, Location

# The first that is found in the name decides.
_NAMES: tuple[tuple[KernelKind, str], ...] = (
    ("communication", r"nccl|rccl|oneshot|all_?reduce_kernel"),
    ("attention", r"flash|fmha|sdpa|attention|mha_|dot_do_o|convert_dq"),
    ("recurrent", r"lstm|gru_cell|RNN|elementWise_bp"),
    ("layout", r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|transpose"),
    ("normalisation", r"(batch|layer|group|rms|instance)_?norm|bn_(fw|bw)|GammaBeta|RowwiseMoments"),
    ("convolution", r"fprop|dgrad|wgrad|implicit_gemm|conv(?!ert)|winograd|fft"),
    ("gemm", r"gemm|nvjet|cutlass|splitK|gemv|cublas|dot_kernel|matmul|_mm_|triton_tem"),
    ("optimizer", r"multi_tensor_apply|fused_?adam|adagrad|lamb_kernel"),
    ("copy", r"^Mem(cpy|set)|direct_copy|copy_kernel|CatArray|FillFunctor|_cat_"),
    ("pointwise", r"upsample"),
    ("indexing", r"index|gather|scatter|embedding|take_|masked_select|nonzero|compute_grad_weight|krn_partial"),
    ("reduction", r"reduce|softmax|nll_loss|norm|triton_(red|per)|cumsum|scan|sort|topk|argmax|pool"),
    ("pointwise", r"elementwise|vectorized|unrolled|dropout|distribution|triton_poi|pointwise"),
)
_KINDS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _NAMES)
# Names of kernels that compute on tensor cores: shapes of their instructions, the types only they multiply.
_TENSOR_CORES = re.compile(
    r"tf32|bf16|f16|h16|_16816|s1688|s16816|tensorop|hmma|wgmma|imma|qmma|nvjet|flash|fmha|e4m3|e5m2", re.IGNORECASE
)
_SIMPLE = re.compile(r"simt|ffma|sgemm|dgemm")
_FLOAT64 = re.compile(r"f64|dgemm|d884|\bdouble\b")


def kernel_use(ranks: Sequence[Rank]) -> KernelUse | None:
    """Of the first rank that has a window; None where none was recorded."""
    for rank in ranks:
        windows = told(rank.recording, "kernels")
        if windows:
            return describe_window(windows[-1])
    return None


def describe_window(window: Mapping[str, Any]) -> KernelUse:
    per_step = 1.0 / max(1, int(window.get("steps", 1)))
    names = [str(name) for name in window["names"]]
    kinds = [kind_of(name) for name in names]
    shares: dict[KernelKind, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    lines: dict[tuple[str, int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, place, count, ms in window["rows"]:
        phase, at = place if place else ("", None)
        count, ms = count * per_step, ms * per_step
        kind: KernelKind = "optimizer" if phase == "optimizer" else kinds[number]
        share = shares[kind]
        share[0] += count
        share[1] += ms
        share[2] += ms if uses_tensor_cores(names[number]) else 0.0
        share[3] += ms if _FLOAT64.search(names[number]) else 0.0
        if at:
            line = lines[str(at[0]), int(at[1]), str(at[2]), phase]
            line[0] += count
            line[1] += ms
    shares["other"][1] += float(window.get("rest_ms", 0.0)) * per_step
    return KernelUse(
        busy_ms=float(window["busy_ms"]) * per_step,
        count=float(window["kernels"]) * per_step,
        host_ms={str(phase): float(ms) * per_step for phase, ms in window.get("host_ms", {}).items()},
        kinds=tuple(
            sorted(
                (KernelShare(kind, *totals) for kind, totals in shares.items() if totals[1] > 0),
                key=lambda share: -share.ms,
            )
        ),
        lines=tuple(
            sorted(
                (
                    KernelLine(Location(file, line), function, phase, count, ms)
                    for (file, line, function, phase), (count, ms) in lines.items()
                ),
                key=lambda line: -line.ms,
            )
        ),
    )


def kind_of(name: str) -> KernelKind:
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


def uses_tensor_cores(name: str) -> bool:
    return kind_of(name) in MULTIPLYING and bool(_TENSOR_CORES.search(name)) and not _SIMPLE.search(name)
