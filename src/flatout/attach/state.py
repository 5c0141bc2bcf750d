"""Settings as they live in the process: what the script really runs with, whatever its config says."""

from __future__ import annotations

import os
import sys
from typing import Any

from .graph import GraphInspector


def read_torch_state(torch: Any, graph: GraphInspector) -> dict[str, object]:
    """Backends, precision and threads now. Touches CUDA only if the script has."""
    state: dict[str, object] = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device_name": None,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": graph.anomaly or torch.is_anomaly_enabled(),
        "anomaly_operations": graph.operations or None,
        "num_threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "compiled": graph.compiled or _dynamo_count("frames") > 0,
        "compiled_frames": _dynamo_count("frames"),
        "compile_s": _compile_s(),
        "graph_breaks": _dynamo_count("graph_break"),
        "grad_dtypes": _shares(graph.dtypes),
        # Of the convolutions that tensor cores can take, by layout; and of all convolutions and matrix products.
        "convolution_layouts": _shares(graph.convolutions.layouts),
        "convolution_share": _shares({"": graph.convolutions.seen, "products": graph.convolutions.products}).get(""),
    }
    # Old and new names for TF32 may not be mixed in one process: reading is safe only through the old ones.
    for name, owner in (("matmul_allow_tf32", torch.backends.cuda.matmul), ("cudnn_allow_tf32", torch.backends.cudnn)):
        try:
            state[name] = bool(owner.allow_tf32)
        except (RuntimeError, AttributeError):
            state[name] = None
    if torch.cuda.is_initialized():
        index = torch.cuda.current_device()
        state["device_name"] = torch.cuda.get_device_name(index)
        state["device_uuid"] = str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) or None
        state["devices_used"] = torch.cuda.device_count()
        stats = torch.cuda.memory_stats(index)
        state["memory_peak"] = torch.cuda.max_memory_reserved(index)
        state["memory_allocated_peak"] = stats.get("allocated_bytes.all.peak")
        state["memory_split_peak"] = stats.get("inactive_split_bytes.all.peak")
        state["alloc_retries"] = stats.get("num_alloc_retries")
        state["memory_allowed_share"] = _memory_allowed_share(torch, index)
        state["alloc_conf"] = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    return state


def _memory_allowed_share(torch: Any, index: int) -> float | None:
    """Of the device, what the script lets this process take; None where torch does not tell."""
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    try:
        return None if ask is None else float(ask(index))
    except (RuntimeError, ValueError, TypeError):
        return None


def _shares(counts: dict[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: round(count / total, 4) for name, count in counts.items()} if total else {}


def _compile_s() -> float | None:
    """Seconds spent compiling so far, as the compiler itself counts them."""
    spent = getattr(sys.modules.get("torch._dynamo.utils"), "calculate_time_spent", None)
    try:
        return None if spent is None else round(float(spent().get("total_wall_time", 0.0)), 4)
    except Exception:  # a private function of torch: whatever becomes of it, the run goes on
        return None


def _dynamo_count(name: str) -> int:
    # Looked up, never imported: torch._dynamo costs seconds.
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return sum(counters[name].values()) if name in counters else 0


def read_rank() -> dict[str, int | None]:
    """Which rank this process is, by the variables torchrun and its like set."""

    def number(name: str) -> int | None:
        text = os.environ.get(name, "")
        return int(text) if text.isdigit() else None

    return {
        "rank": number("RANK"),
        "local_rank": number("LOCAL_RANK"),
        "world_size": number("WORLD_SIZE"),
    }
