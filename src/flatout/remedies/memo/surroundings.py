"""What lies around a call: settings of torch that a result hangs on, and random generators that a draw would move."""

from __future__ import annotations

import random
import sys
from collections.abc import Hashable
from typing import Any


def settings(torch: Any, has_products: bool) -> Hashable | None:
    """Of this thread, just now; None where calls are recorded or rewritten, so that none may be left out.

    How products round is left out where a function has none: a trial that changes it need not compute all results anew.
    """
    c = torch._C
    if (
        torch.compiler.is_compiling()
        or _count(c, "_len_torch_function_stack")
        or _count(c, "_len_torch_dispatch_stack")
    ):
        return None
    on_gpu: tuple[Any, ...] = ()
    if torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return None
        # What is kept was made by work in one stream, and is ready only there.
        on_gpu = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    autocast = tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda"))
    rounding = _of_products(torch.backends) if has_products else ()
    return (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, on_gpu,
        torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), *rounding,
    )  # fmt: skip


def _of_products(backends: Any) -> tuple[Any, ...]:
    """Where torch has the newer names of these, asking by the older ones can fail."""
    cudnn, matmul = backends.cudnn, backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        rounding = (matmul.fp32_precision, cudnn.conv.fp32_precision)
    else:
        rounding = (matmul.allow_tf32, cudnn.allow_tf32)
    return (*rounding, cudnn.benchmark, cudnn.deterministic)


def _count(c: Any, name: str) -> int:
    return int(getattr(c, name, int)())


def generators(torch: Any) -> tuple[Any, ...]:
    """The states of all that scripts commonly draw from."""
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state(legacy=False) if numpy is not None else {}
    of_gpu = torch.cuda.get_rng_state().tolist() if torch.cuda.is_initialized() else None
    return torch.get_rng_state().numpy().tobytes(), of_gpu, random.getstate(), _plain(of_numpy)


def has_drawn(torch: Any, before: tuple[Any, ...]) -> str | None:
    """Whose generator has moved since."""
    names = ("torch's", "the GPU's", "Python's", "numpy's")
    changed = [name for name, one, other in zip(names, before, generators(torch), strict=True) if one != other]
    return changed[0] if changed else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.tobytes() if hasattr(value, "tobytes") else value
