"""One line on the RAM in use, and a warning before the machine runs out of it."""

from __future__ import annotations

import psutil

CRITICAL_PERCENT = 90.0


def log_memory(tag: str) -> None:
    process = psutil.Process().memory_info().rss
    system = psutil.virtual_memory()
    print(
        f"[{tag}] Memory - Process: {process / 2**20:.1f}MB ({100 * process / system.total:.1f}%), "
        f"System: {system.used / 2**30:.1f}/{system.total / 2**30:.1f}GB ({system.percent:.1f}%)",
        flush=True,
    )
    if system.percent > CRITICAL_PERCENT:
        print(f"WARNING: System memory usage is critically high ({system.percent:.1f}%)!")
        print("   Consider reducing CACHE_SIZE_GB or TOTAL_WORKERS in config.", flush=True)
