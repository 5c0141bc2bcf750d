"""`flatout memory`: will workers × prefetch × batch × ranks, and a cache, fit this machine?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatout.diagnose.memory import judge_plan, parse_size, shape_bytes
from flatout.diagnose.summary import summarise_run
from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_stdout
from flatout.records.memory import LoaderPlan, MachineLimits, MemoryVerdict
from flatout.records.message import Message, message, verbatim
from flatout.records.report import RunReport
from flatout.report.memory import fits, render, to_json
from flatout.store.directory import find_run
from flatout.store.run import StoredRun
from flatout.telemetry.cgroup import CgroupSampler, cpus_allowed
from flatout.telemetry.host import HostSampler


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What was given on the command line; None where the run, or a default, has to do."""

    sample_bytes: str | None = None
    shapes: tuple[str, ...] = ()
    batch: int | None = None
    workers: int | None = None
    prefetch: int | None = None
    ranks: int | None = None
    cache: str | None = None
    cache_is_shared: bool = False
    dataset_len: int | None = None
    pinned: bool | None = None


def run_memory(run: str | None, asked: MemoryRequest, *, as_json: bool, quiet: bool) -> tuple[str, int]:
    """The text to print and the exit code: 0 if it fits, 1 if not."""
    verdict = _verdict(run, asked)
    code = 0 if fits(verdict) else 1
    if as_json:
        return json.dumps(to_json(verdict), indent=2, allow_nan=False) + "\n", code
    screen = detect_stdout()
    return render(verdict, width=screen.width, color=screen.color, unicode=screen.unicode, quiet=quiet), code


def _verdict(run: str | None, asked: MemoryRequest) -> MemoryVerdict:
    _check(asked)
    report = None if run is None else summarise_run(StoredRun(find_run(run)))
    settings = {} if report is None else _training_loader(report)
    sample_bytes, sample_from = _sample(asked, report)
    plan = LoaderPlan(
        sample_bytes=sample_bytes,
        batch=_first(asked.batch, settings.get("batch_size"), default=1),
        workers=_first(asked.workers, settings.get("num_workers"), default=0),
        prefetch=_first(asked.prefetch, settings.get("prefetch_factor"), default=2),
        ranks=_first(asked.ranks, None if report is None else max(1, report.run.ranks), default=1),
        pinned=bool(settings.get("pin_memory")) if asked.pinned is None else asked.pinned,
        cache_bytes=0.0 if asked.cache is None else parse_size(asked.cache, "--cache"),
        cache_is_shared=asked.cache_is_shared,
        dataset_len=asked.dataset_len or settings.get("dataset_len"),
    )
    peak = report.host.memory_peak if report is not None and report.host is not None else None
    verdict = judge_plan(plan, machine_limits())
    return replace(verdict, sample_from=sample_from, measured_peak_bytes=peak)


def _check(asked: MemoryRequest) -> None:
    least = {"batch": 1, "workers": 0, "prefetch": 1, "ranks": 1, "dataset_len": 1}
    for name, bound in least.items():
        value = getattr(asked, name)
        if value is not None and value < bound:
            raise FlatoutError(f"--{name.replace('_', '-')} must be at least {bound}, got {value}")
    if asked.sample_bytes is not None and asked.shapes:
        raise FlatoutError("--sample-bytes and --shape say the same thing: give one of them")


def _first(*values: Any, default: int) -> int:
    return int(next((value for value in values if value is not None), default))


def _sample(asked: MemoryRequest, report: RunReport | None) -> tuple[float, Message]:
    if asked.sample_bytes is not None:
        value = parse_size(asked.sample_bytes, "--sample-bytes")
        if value <= 0:
            raise FlatoutError(f"--sample-bytes must be above 0, got {asked.sample_bytes!r}")
        return value, message("memory.as_given")
    if asked.shapes:
        return sum(shape_bytes(shape) for shape in asked.shapes), verbatim(" + ".join(asked.shapes))
    if report is None:
        raise FlatoutError(
            "how big is a sample? give --sample-bytes 3.4MB, --shape 3x720x1280:float32, or a stored RUN"
        )
    measured = _copied_bytes(report)
    if measured is None:
        raise FlatoutError(
            f"run {report.run.id} copied nothing to a GPU, so a sample's size is not known; give --sample-bytes"
        )
    return measured, message("memory.copied")


def _copied_bytes(report: RunReport) -> float | None:
    """Host-to-device bytes of a step over the samples of a step."""
    rates = report.throughput
    if not rates.samples_per_s or not rates.steps_per_s:
        return None
    samples = rates.samples_per_s / rates.steps_per_s / max(1, report.run.ranks)
    copied = sum(copy.bytes_per_step for copy in report.copies)
    return copied / samples if copied > 0 and samples > 0 else None


def _training_loader(report: RunReport) -> dict[str, Any]:
    """The settings of the loader that gave most samples."""
    loaders: Sequence[dict[str, Any]] = report.live.get("loaders", [])  # type: ignore[assignment]
    samples = {cost.loader: cost.samples for cost in report.workers}
    return max(loaders, key=lambda settings: samples.get(settings.get("id", -1), 0), default={})


def machine_limits() -> MachineLimits:
    """What this process may still use: of the host, or of its container where that is less."""
    host, group = HostSampler().sample(), CgroupSampler().sample()
    total, free, by = host.memory_total_bytes, host.memory_available_bytes, "host"
    if group.memory_limit_bytes is not None and group.memory_limit_bytes < (total or math.inf):
        used = (group.memory_current_bytes or 0.0) - (group.memory_cache_bytes or 0.0)
        total, by = group.memory_limit_bytes, "container"
        free = min(free if free is not None else math.inf, max(0.0, total - used))
    shm_free = None
    if host.shm_total_bytes is not None:
        shm_free = host.shm_total_bytes - (host.shm_used_bytes or 0.0)
    return MachineLimits(total, free, by, host.shm_total_bytes, shm_free, cpus_allowed())
