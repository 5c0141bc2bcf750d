"""How much memory a DataLoader can come to take, and the settings that fit a machine. Pure arithmetic.

Each worker has up to `prefetch` batches under way, and tensors travel from workers through /dev/shm, so that much
shared memory is in use when the training is slower than its loader. A cache that lives in the dataset object exists
once in every worker of every rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from flatout.errors import FlatoutError
from flatout.records.memory import CacheOutlook, LoaderPlan, MachineLimits, MemoryNeed, MemoryVerdict

# Besides what the workers have under way: the batch in use, and the one that is handed over.
_AT_THE_LOOP = 2
# What a process has for itself: a forked worker (most pages stay shared), and a training process with its CUDA context.
WORKER_BYTES = 150 * 2**20
TRAINER_BYTES = 3 * 2**30
# Of what is free, so much may be planned with; of it, a cache may take half.
_USABLE = 0.8
_FOR_CACHE = 0.5
_UNITS = {"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "t": 1e12, "tb": 1e12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_DTYPE_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "float32": 4}
_DTYPE_BYTES |= {"float": 4, "int32": 4, "int": 4, "float64": 8, "double": 8, "int64": 8, "long": 8}


def parse_size(text: str, option: str) -> float:
    """Bytes of 3.4MB, 512KiB, 50GB or 140083200."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)", text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or not math.isfinite(float(match[1])):
        raise FlatoutError(f"{option} must be a size such as 3.4MB, 512KiB or 50GB, got {text!r}")
    return float(match[1]) * unit


def shape_bytes(text: str) -> float:
    """Bytes of a tensor such as 3x720x1280:float32 (float32 if no type is named)."""
    dims, _, kind = text.strip().lower().partition(":")
    sides = dims.replace("×", "x").split("x")
    if not all(side.isdigit() and int(side) > 0 for side in sides) or (kind or "float32") not in _DTYPE_BYTES:
        raise FlatoutError(f"--shape must be such as 3x720x1280:float32, got {text!r}")
    return float(math.prod(int(side) for side in sides) * _DTYPE_BYTES[kind or "float32"])


def memory_need(plan: LoaderPlan) -> MemoryNeed:
    """The most that the plan can come to on one host."""
    batch_bytes = plan.sample_bytes * plan.batch
    in_flight = plan.workers * plan.prefetch + _AT_THE_LOOP
    caches = 1 if plan.cache_is_shared else max(1, plan.workers) * plan.ranks
    if not plan.cache_bytes:
        caches = 0
    return MemoryNeed(
        batch_bytes=batch_bytes,
        batches_in_flight=in_flight,
        shm_bytes=batch_bytes * in_flight * plan.ranks if plan.workers else 0.0,
        # The samples of a batch exist one by one before they are joined; without workers the batch itself comes on top.
        making_bytes=batch_bytes * plan.ranks * (plan.workers or 2),
        # The pinning thread keeps a copy of the batch in use and of the next one.
        pinned_bytes=batch_bytes * plan.ranks * _AT_THE_LOOP if plan.pinned else 0.0,
        caches=caches,
        cache_bytes=caches * _one_cache(plan),
        process_bytes=float(plan.ranks * (TRAINER_BYTES + plan.workers * WORKER_BYTES)),
    )


def _one_cache(plan: LoaderPlan) -> float:
    """A cache never holds more than there is."""
    whole = math.inf if plan.dataset_len is None else plan.dataset_len * plan.sample_bytes
    return min(plan.cache_bytes, whole)


def cache_outlook(plan: LoaderPlan) -> CacheOutlook | None:
    """LRU throws out what it will need soonest: shuffled once an epoch, it hits f + (1-f) ln(1-f), keeping hits f."""
    if not plan.cache_bytes or not plan.dataset_len:
        return None
    share = min(1.0, plan.cache_bytes / (plan.dataset_len * plan.sample_bytes))
    lru = 1.0 if share >= 1 else share + (1 - share) * math.log(1 - share)
    return CacheOutlook(share, max(0.0, lru), share)


def judge_plan(plan: LoaderPlan, limits: MachineLimits) -> MemoryVerdict:
    """Whether the plan fits, and the nearest one that does."""
    wanted = memory_need(plan)
    fits_ram, fits_shm = _fits(wanted.ram_bytes, limits.ram_free_bytes), _fits(wanted.shm_bytes, limits.shm_free_bytes)
    chosen = find_safe_plan(plan, limits)
    return MemoryVerdict(
        plan=plan,
        need=wanted,
        limits=limits,
        fits_ram=fits_ram,
        fits_shm=fits_shm,
        cache=cache_outlook(plan),
        safe=chosen,
        safe_need=None if chosen is None else memory_need(chosen),
    )


def _fits(wanted: float, free: float | None) -> bool | None:
    return None if free is None else wanted <= free


def find_safe_plan(plan: LoaderPlan, limits: MachineLimits) -> LoaderPlan | None:
    """As many workers as asked for if possible, then as much prefetch; the batch stays, for it belongs to training."""
    for candidate in _candidates(plan, limits):
        bare = replace(candidate, cache_bytes=0.0)
        if not _is_comfortable(bare, limits):
            continue
        with_cache = _with_cache(bare, plan, limits)
        if _is_comfortable(with_cache, limits):
            return with_cache
    return None


def _candidates(plan: LoaderPlan, limits: MachineLimits) -> Iterator[LoaderPlan]:
    # More workers than processors only add memory.
    most = min(plan.workers, max(1, int(limits.cpus // plan.ranks)))
    for workers in range(most, -1, -1):
        for prefetch in range(plan.prefetch if workers else 1, 0, -1):
            yield replace(plan, workers=workers, prefetch=prefetch)


def _with_cache(bare: LoaderPlan, plan: LoaderPlan, limits: MachineLimits) -> LoaderPlan:
    """One cache for the host, of what was asked for in all or of half the memory that is left."""
    if not plan.cache_bytes:
        return bare
    if _is_comfortable(same := replace(bare, cache_bytes=plan.cache_bytes), limits) and (
        plan.cache_is_shared or same.workers * same.ranks <= 1
    ):
        return same
    asked = min(plan.cache_bytes, _one_cache(plan))
    if limits.ram_free_bytes is not None:
        asked = min(asked, _FOR_CACHE * max(0.0, _USABLE * limits.ram_free_bytes - memory_need(bare).ram_bytes))
    return replace(bare, cache_bytes=float(int(asked)), cache_is_shared=True)


def _is_comfortable(plan: LoaderPlan, limits: MachineLimits) -> bool:
    wanted = memory_need(plan)
    ram, shm = limits.ram_free_bytes, limits.shm_free_bytes
    return (ram is None or wanted.ram_bytes <= _USABLE * ram) and (shm is None or wanted.shm_bytes <= _USABLE * shm)
