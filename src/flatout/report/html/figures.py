"""The main figures of a run as the terminal writes them, and the names of what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flatout.records.report import GpuUse, RunReport
from flatout.records.timeline import Timeline
from flatout.report import text


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` is None where it was not measured."""

    name: str
    value: str | None
    more: str | None = None


def figures(report: RunReport) -> tuple[Figure, ...]:
    return (*_speed(report), *_gpu(report), *_host(report))


def _speed(report: RunReport) -> Iterator[Figure]:
    rates = report.throughput
    step_ms = sum(phase.ms for phase in report.phases.values())
    yield Figure("samples_per_s", None if rates.samples_per_s is None else text.figure(rates.samples_per_s))
    yield Figure("steps_per_s", None if rates.steps_per_s is None else text.figure(rates.steps_per_s))
    yield Figure("step_ms", text.milliseconds(step_ms) if step_ms else None)


def _gpu(report: RunReport) -> Iterator[Figure]:
    if report.run.device == "cpu" and report.gpu is None:
        return
    gpu = report.gpu or GpuUse()
    yield Figure("starved", _percent(gpu.starved_share))
    spread = None if gpu.util_spread is None or gpu.util_mean is None else f"± {gpu.util_spread:.0f}"
    yield Figure("util", None if gpu.util_mean is None else f"{gpu.util_mean:.0f}%", spread)
    yield Figure("power", _percent(gpu.power_share))
    yield Figure("sm", _percent(gpu.sm_active))
    yield Figure("tensor", _percent(gpu.tensor_active))
    yield Figure("drained", _percent(gpu.drained_share))
    yield Figure("gpu_memory", None if gpu.memory_peak is None else text.gibibytes(gpu.memory_peak))


def _host(report: RunReport) -> Iterator[Figure]:
    host = report.host
    cores = None if host is None else host.cpu_cores
    memory = None if host is None else host.memory_peak
    yield Figure("cores", None if cores is None else f"{cores:.1f}")
    yield Figure("host_memory", None if memory is None else text.gibibytes(memory))


def _percent(share: float | None) -> str | None:
    return None if share is None else text.percent(share)


# What a report may lack: the chart that would show it. Those of a GPU are missed only where one was used.
_CHARTS = ("memory", "cpu", "disk", "tree_cpu", "rate", "queue")
_GPU_CHARTS = ("gpu", "starved", "gpu_memory")


def unmeasured(report: RunReport, timeline: Timeline | None) -> list[str]:
    """Names of what this run does not show, so that nobody takes it for zero."""
    curves = timeline.curves if timeline is not None else {}
    on_gpu = report.run.device != "cpu"
    found = [name for name in (*(_GPU_CHARTS if on_gpu else ()), *_CHARTS) if name not in curves]
    of_gpu = curves["gpu"].values if "gpu" in curves else {}
    found += [name for name in ("sm", "tensor", "power") if on_gpu and "gpu" in curves and name not in of_gpu]
    if not on_gpu:
        found.append("no_gpu")
    if report.run.steps and not report.lines:
        found.append("lines")
    if report.run.steps and not any(worker.workers for worker in report.workers) and "queue" in found:
        # Without workers there is no queue: nothing is missing.
        found.remove("queue")
    found.append("loss")
    return found
