"""What a run depends on besides its code: machine, limits, commit, and the few variables that change its speed."""

from __future__ import annotations

import mmap
import os
import platform
import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median

from flatout.telemetry.host import disk_space
from flatout.telemetry.procfile import read_file

# Only these names are ever looked at: an environment is full of secrets.
_VARIABLES = re.compile(
    r"(OMP|MKL|KMP|GOMP|OPENBLAS|CUDA|CUDNN|CUBLAS|NCCL|PYTORCH|TORCH|TORCHINDUCTOR|TORCHDYNAMO|TRITON|NVIDIA|HF_DATASETS)"
    r"_[A-Z0-9_]+|TORCH[A-Z_]*|WORLD_SIZE|LOCAL_WORLD_SIZE|MALLOC_[A-Z_]+|LD_PRELOAD|PYTHON(HASHSEED|MALLOC|OPTIMIZE)"
)
_PRIVATE = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY|KEY_|AUTH", re.IGNORECASE)
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MIB = 4
_TIMES = 3


def machine_facts() -> dict[str, object]:
    """The host as this process may use it."""
    shm_bytes = disk_space(Path("/dev/shm"))[1]
    return {
        "host": platform.node(),
        "os": _os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": _memory_bytes(),
        "shm_bytes": None if shm_bytes is None else int(shm_bytes),
    }


def speed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how fast torch runs, by an allow-list of names."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name) and not _PRIVATE.search(name)
    }


def git_commit(folder: Path) -> str | None:
    """The commit checked out in the repository around `folder`, read without starting git."""
    for parent in (folder, *folder.parents):
        marker = parent / ".git"
        if marker.exists():
            try:
                return _head(marker)
            except (OSError, UnicodeDecodeError):
                return None
    return None


def _head(marker: Path) -> str | None:
    git = marker
    if marker.is_file():  # a worktree or submodule: "gitdir: <path>"
        git = marker.parent / marker.read_text().partition("gitdir:")[2].strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head if _HASH.fullmatch(head) else None
    name = head.partition("ref:")[2].strip()
    common = git / "commondir"
    shared = git / common.read_text().strip() if common.is_file() else git
    for folder in (git, shared):
        if (folder / name).is_file():
            return (folder / name).read_text().strip()
    for line in (shared / "packed-refs").read_text().splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return commit
    return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_model() -> str | None:
    """x86 names its CPU; ARM gives numbers only, then the architecture has to do."""
    for line in (read_file(Path("/proc/cpuinfo")) or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


# What memory costs that another process has filled: to touch it for the first time, and to free it. A loader's
# workers hand every batch over in such memory, and torch's take fresh one for each.


@cache
def fresh_memory_ms() -> dict[str, float] | None:
    """Milliseconds per MiB on this machine, for "reading" and "freeing"; None where it cannot be measured."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        taken = [_taken_s() for _ in range(_TIMES)]
    except (OSError, MemoryError):
        return None
    reading, freeing = (1e3 * median(seconds) / _MIB for seconds in zip(*taken, strict=True))
    return {"reading": round(reading, 4), "freeing": round(freeing, 4)}


def _taken_s() -> tuple[float, float]:
    size, file = _MIB << 20, os.memfd_create("flatout-fresh", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, size)
        with mmap.mmap(file, size) as filled:
            filled[:] = b"\1" * size
        begun = time.perf_counter()
        with mmap.mmap(file, size) as mapped:
            mapped[:: mmap.PAGESIZE]  # touches every page
            read = time.perf_counter()
    finally:
        os.close(file)
    return read - begun, time.perf_counter() - read
