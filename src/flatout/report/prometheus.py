"""Live figures in Prometheus' text format. What is not measured has no line at all: a zero would be a lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

from flatout.records.sample import GpuReading, Tick
from flatout.report.live import LiveFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


# A line: name, value and labels. Base units, as the format's conventions have it: seconds, bytes, ratios of 1.
_Value = tuple[str, float | None, Labels]
_HELP = {
    "flatout_info": "The run and the version of flatout that watches it.",
    "flatout_elapsed_seconds": "Since the recording began.",
    "flatout_steps_total": "Optimizer steps of the rank that has made most.",
    "flatout_steps_per_second": "Of the last few seconds, mean over ranks.",
    "flatout_samples_per_second": "Of the last few seconds, all ranks together.",
    "flatout_phase_ratio": "Part of the steps' wall time of the last few seconds in a phase.",
    "flatout_gpu_starved_ratio": "Part of the device's time in which it waited for a batch.",
    "flatout_gpu_utilization_ratio": "Part of the time in which some kernel ran, however small.",
    "flatout_gpu_sm_active_ratio": "Mean part of the multiprocessors with work.",
    "flatout_gpu_tensor_active_ratio": "Part of the time in which tensor cores worked.",
    "flatout_gpu_power_watts": "What the GPU draws.",
    "flatout_gpu_power_limit_watts": "What it may draw.",
    "flatout_gpu_memory_used_bytes": "Device memory in use, by anybody.",
    "flatout_gpu_memory_total_bytes": "Device memory there is.",
    "flatout_gpu_temperature_celsius": "Of the GPU.",
    "flatout_host_cpu_ratio": "Part of all cores that is busy.",
    "flatout_host_memory_available_bytes": "Memory that can be had without swapping.",
    "flatout_host_memory_total_bytes": "Memory there is.",
    "flatout_cgroup_memory_bytes": "Memory of the container, cache included.",
    "flatout_cgroup_memory_limit_bytes": "What the container may take.",
    "flatout_process_cpu_cores": "Processor seconds a second of the watched processes, by role.",
    "flatout_process_resident_memory_bytes": "Of the watched processes, by role; pages they share count each time.",
    "flatout_processes": "Watched processes, by role.",
}
_COUNTERS = {"flatout_steps_total"}
_OF_GPU = {
    "sm_active_ratio": "sm_active_share",
    "tensor_active_ratio": "tensor_active_share",
    "power_watts": "power_w",
    "power_limit_watts": "power_limit_w",
    "memory_used_bytes": "memory_used_bytes",
    "memory_total_bytes": "memory_total_bytes",
    "temperature_celsius": "temperature_c",
}


def exposition(figures: LiveFigures | None, tick: Tick | None, info: Labels) -> str:
    """The whole page: every metric with its type, help and lines."""
    found: list[_Value] = [("flatout_info", 1.0, info), *_of_run(figures), *_of_tick(tick)]
    lines: list[str] = []
    for name, words in _HELP.items():
        values = [(value, labels) for what, value, labels in found if what == name]
        told = [
            f"{name}{_labels(labels)} {value!r}" for value, labels in values if value is not None and isfinite(value)
        ]
        if told:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {'counter' if name in _COUNTERS else 'gauge'}", *told]
    return "\n".join(lines) + "\n"


def _of_run(figures: LiveFigures | None) -> Iterator[_Value]:
    if figures is None:
        return
    yield "flatout_elapsed_seconds", figures.elapsed_s, {}
    yield "flatout_steps_total", float(figures.steps), {}
    yield "flatout_steps_per_second", figures.steps_per_s, {}
    yield "flatout_samples_per_second", figures.samples_per_s, {}
    yield "flatout_gpu_starved_ratio", figures.starved_share, {}
    for phase, share in figures.phases.items():
        yield "flatout_phase_ratio", share, {"phase": phase}


def _of_tick(tick: Tick | None) -> Iterator[_Value]:
    if tick is None:
        return
    if tick.gpu is not None:
        yield from _of_gpus(tick.gpu)
    if tick.host is not None:
        yield "flatout_host_cpu_ratio", tick.host.cpu_share, {}
        yield "flatout_host_memory_available_bytes", tick.host.memory_available_bytes, {}
        yield "flatout_host_memory_total_bytes", tick.host.memory_total_bytes, {}
    if tick.cgroup is not None:
        yield "flatout_cgroup_memory_bytes", tick.cgroup.memory_current_bytes, {}
        yield "flatout_cgroup_memory_limit_bytes", tick.cgroup.memory_limit_bytes, {}
    for role in dict.fromkeys(process.role for process in tick.processes):
        mine = [process for process in tick.processes if process.role == role]
        yield "flatout_processes", float(len(mine)), {"role": role}
        yield "flatout_process_cpu_cores", _sum([process.cpu_share for process in mine]), {"role": role}
        yield "flatout_process_resident_memory_bytes", _sum([process.rss_bytes for process in mine]), {"role": role}


def _of_gpus(reading: GpuReading) -> Iterator[_Value]:
    names = {facts.gpu: facts.name for facts in reading.facts}
    for gpu in reading.gpus:
        labels = {"gpu": str(gpu.gpu), **({"name": names[gpu.gpu]} if gpu.gpu in names else {})}
        util = None if gpu.util_percent is None else gpu.util_percent / 100.0
        yield "flatout_gpu_utilization_ratio", util, labels
        for name, field in _OF_GPU.items():
            yield f"flatout_gpu_{name}", getattr(gpu, field), labels


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
