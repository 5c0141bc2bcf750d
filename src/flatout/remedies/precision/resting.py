"""Does the GPU compute in float32 while its tensor cores rest? Then coarser products are worth a look.

No finding says so: the device does not bind alone, or not all of the time, and what it gains cannot be foretold. A look
costs little, for the precision is switched in mid-training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import torch_state

if TYPE_CHECKING:
    from ...records.report import RunReport

WORDS = "the GPU computes in float32 for a good part of the time, its tensor cores hardly at all"
_COMPUTES, _TENSOR_CORES_REST, _MOSTLY = 0.3, 0.02, 0.9


def tensor_cores_rest(report: RunReport) -> bool:
    gpu, state = report.gpu, torch_state(report)
    if gpu is None or gpu.tensor_active is None or gpu.tensor_active > _TENSOR_CORES_REST:
        return False
    if state.get("matmul_precision") != "highest" or state.get("matmul_allow_tf32"):
        return False
    float32 = (state.get("grad_dtypes") or {}).get("float32", 0.0)
    return float(float32) >= _MOSTLY and (gpu.busy_share or 0.0) >= _COMPUTES
