"""Measures what a device can do: a program of its own, for any interpreter that has torch. `roofline.py` starts it.

`python -c <this text> ANSWER DEVICE` writes a JSON object to the file ANSWER. Standard library and torch only, and
nothing of flatout's: it is started as a text, because beside this file lie modules named like some of Python's.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    # Older versions of torch have no such type.
    "float8": getattr(torch, "float8_e4m3fn", None),
}
# Products of this many rows and columns: small cards are at their best with the second, large ones with the third.
_SIZES = (2048, 4096, 8192)
# No product is timed that would take longer than this: float64 is slow on most cards.
_LONGEST_S = 0.25
# Calls are timed in blocks, long beside the microseconds that the events at their ends cost. The best one counts, as
# the card may have other users.
_BLOCK_S, _BLOCKS = 0.02, 5
# An idle card needs a while until its clocks are up.
_WARM_UP_S = 0.5
# At most this part of the free memory is taken, as the card may have other users.
_PART_OF_FREE = 8
# Each side of a copy: as much as there is room for, but far more than caches hold (128 MiB of level 2 at most in 2025).
_MOST_COPIED, _LEAST_COPIED = 1 << 30, 1 << 28
# Fewer than the 1024 launches that CUDA queues, so that the host never waits for the device within a block.
_LAUNCHES, _LAUNCH_BLOCKS = 1000, 5


def measure(device: torch.device) -> dict[str, object]:
    """The fields of a `Roofline`, or the reason why there are none."""
    spare_bytes = torch.cuda.mem_get_info(device)[0] // _PART_OF_FREE
    if spare_bytes < 2 * _LEAST_COPIED:
        return {"reason": "too little free memory"}
    best_s(_product("float32", _SIZES[0], device), device, warm_up_s=_WARM_UP_S)
    memory_gb_s = copy_gb_s(device, min(_MOST_COPIED, spare_bytes // 2))
    launched_us = launch_us(device)
    tflops = {precision: product_tflops(precision, device, spare_bytes) for precision in _precisions(device)}
    return {
        "device": torch.cuda.get_device_name(device),
        "tflops": {precision: rate for precision, rate in tflops.items() if rate is not None},
        "memory_gb_s": memory_gb_s,
        "launch_us": launched_us,
        "source": "measured",
        "torch": str(torch.__version__),
    }


def _precisions(device: torch.device) -> list[str]:
    """A card without TF32 takes the setting and computes in float32 all the same."""
    has_tf32 = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return [precision for precision in _DTYPES if precision != "tf32" or has_tf32]


def product_tflops(
    precision: str, device: torch.device, spare_bytes: int, sizes: tuple[int, ...] = _SIZES
) -> float | None:
    """10^12 operations a second of a matrix product, the best of these sizes; None where it cannot be done."""
    best = None
    try:
        with _float32_products("high" if precision == "tf32" else "highest"):
            for size in sizes:
                # Two factors and the result. float8 is made from bfloat16, and gives bfloat16.
                if 3 * size**2 * max(2, _element_bytes(precision)) > spare_bytes:
                    break
                product_s = best_s(_product(precision, size, device), device)
                _give_back(device)
                best = max(best or 0.0, 2 * size**3 / product_s / 1e12)
                # The next size has twice the rows and columns.
                if 8 * product_s > _LONGEST_S:
                    break
    except Exception:  # whatever this card, driver or torch has against it
        pass
    return best


def copy_gb_s(device: torch.device, each_bytes: int) -> float:
    """10^9 bytes a second, read and written, while memory of the device is copied within it."""
    copied_s = best_s(_copy(each_bytes, device), device)
    _give_back(device)
    return 2 * each_bytes / copied_s / 1e9


def launch_us(device: torch.device) -> float:
    """Microseconds of the host for one of many operations that have next to nothing to do."""
    number = torch.zeros(1, device=device)
    blocks_s = []
    # The first block is for what happens once.
    for _ in range(1 + _LAUNCH_BLOCKS):
        begun = time.perf_counter()
        for _ in range(_LAUNCHES):
            number.add_(1)
        blocks_s.append(time.perf_counter() - begun)
        _wait(device)
    return 1e6 * median(blocks_s[1:]) / _LAUNCHES


def best_s(call: Callable[[], object], device: torch.device, warm_up_s: float = 0.0) -> float:
    """Seconds that a call takes in the best of a few blocks of calls."""
    elapsed_s(call, 1, device)  # loads the kernel
    count = max(1, math.ceil(_BLOCK_S / max(elapsed_s(call, 1, device), 1e-6)))
    warm_s = time.perf_counter() + warm_up_s
    while time.perf_counter() < warm_s:
        elapsed_s(call, count, device)
    return min(elapsed_s(call, count, device) for _ in range(_BLOCKS)) / count


def elapsed_s(call: Callable[[], object], count: int, device: torch.device) -> float:
    """Seconds that so many calls take, by the clock of the device where it has one."""
    if device.type != "cuda":
        begun_s = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - begun_s
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(count):
        call()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3


def _product(precision: str, size: int, device: torch.device) -> Callable[[], object]:
    """Of random numbers: with zeros a card needs less power, and is quicker than it ever is in a training."""
    if precision == "float8":
        left, right = (
            torch.randn(size, size, dtype=torch.bfloat16, device=device).to(_DTYPES[precision]) for _ in range(2)
        )
        scale = torch.ones((), device=device)
        return lambda: torch._scaled_mm(
            left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    left, right, result = (torch.randn(size, size, dtype=_DTYPES[precision], device=device) for _ in range(3))
    return lambda: torch.mm(left, right, out=result)


def _copy(each_bytes: int, device: torch.device) -> Callable[[], object]:
    source = torch.ones(each_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def _element_bytes(precision: str) -> int:
    return torch.empty((), dtype=_DTYPES[precision]).element_size()


@contextmanager
def _float32_products(how: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(how)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _give_back(device: torch.device) -> None:
    """Memory that torch keeps for later would come on top of what the next measurement takes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def main(answer: str, index: str) -> None:
    if torch.cuda.is_available():
        device = torch.device("cuda", int(index))
        torch.cuda.set_device(device)
        found = measure(device)
    else:
        found = {"reason": "torch sees no CUDA device"}
    with open(answer, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
