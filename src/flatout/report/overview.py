"""What several surfaces show of a run: the command to go on with, the main figures, and what was not measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.records.fix import Fix
from flatout.records.message import Message, message
from flatout.records.report import GpuUse, KernelUse, Ladder, RemedyState, RunReport, Warmup
from flatout.records.timeline import Timeline
from flatout.report import text

# Where the usual ten minutes were too short.
_LONGER = "30m"
_PART_SHOWN = 0.01
_KIND_SHOWN = 0.05


def next_command(report: RunReport) -> str:
    """A fix that flatout can try by itself comes first, then one it can write, then what to read about it."""
    if not report.run.steps:
        return "flatout doctor"
    applied = {remedy.id for remedy in report.remedies if remedy.state == "applied"}
    if any(finding.remedy is not None and finding.remedy not in applied for finding in report.findings):
        return f"flatout fix {shlex.join(report.run.argv)}"
    for finding in report.findings:
        if finding.fix is not None and "--unsafe-fixes" not in finding.fix:
            return finding.fix
    if report.findings:
        return f"flatout explain {report.findings[0].code}"
    return f"flatout diagnose --checklist {shlex.quote(report.run.id)}"


def next_after_fix(fix: Fix, profile: str = "flatout.toml") -> str:
    """What was kept is used by the next run; where nothing was, more time or more leave may help."""
    command = shlex.join(fix.command)
    if fix.profile:
        return f"flatout run --with {profile} {command}"
    if any(attempt.state == "not measured" for attempt in fix.tried):
        return f"flatout fix --budget {_LONGER} {command}"
    if any(left_out.forbidden_class == "numeric" for left_out in fix.left_out):
        return f"flatout fix --allow numeric {command}"
    return f"flatout run {command}"


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` is None where it was not measured."""

    name: str
    value: str | None
    more: str | None = None


def spent_on(report: RunReport) -> list[tuple[Message, float]]:
    """What the step is spent on, with the share of each part that is worth a word."""
    shown = ((part, share) for part, share in report.parts.items() if share >= _PART_SHOWN)
    return [(Message(f"part.{part.replace(' ', '_')}"), share) for part, share in shown]


def kernel_kinds(kernels: KernelUse, all_of_them: bool = False) -> list[tuple[Message, float]]:
    """What the time of the kernels goes to, the largest kinds first; the rest is told as other, or kind by kind."""
    total_ms = sum(kind.ms for kind in kernels.kinds)
    if total_ms <= 0:
        return []
    least = _PART_SHOWN if all_of_them else _KIND_SHOWN
    shares = [(kind.kind, kind.ms / total_ms) for kind in kernels.kinds if kind.kind != "other"]
    shown = [(Message(f"kernel.{kind}"), share) for kind, share in shares if share >= least]
    rest = 1 - sum(share for _, share in shown)
    return [*shown, (Message("kernel.other"), rest)] if rest >= _PART_SHOWN else shown


def ladder_rungs(ladder: Ladder) -> list[tuple[Message, float]]:
    """Milliseconds of a step, from as it is to the device's limit."""
    return [(Message(f"ladder.{rung.name}"), rung.ms) for rung in ladder.rungs]


def waits_for_batches(report: RunReport) -> bool:
    """A script that makes its batches itself never waits for one: there is no such wait to measure."""
    data = report.phases.get("data")
    return data is not None and data.share > 0


def describe_warmup(warmup: Warmup) -> Message:
    """How long it was and why."""
    facts = {"steps": f"{warmup.steps:,}", "seconds": text.duration(warmup.seconds)}
    if not warmup.causes:
        return message("run.warmup_not_explained", **facts)
    causes = tuple(message(f"warmup.{cause.replace(' ', '_')}") for cause in warmup.causes)
    return message("run.warmup", causes=causes, **facts)


def main_figures(report: RunReport) -> tuple[Figure, ...]:
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
    if gpu.starved_share is not None or waits_for_batches(report):
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


def unmeasured_names(report: RunReport, timeline: Timeline | None) -> list[str]:
    """Names of what this run does not show, so that nobody takes it for zero."""
    curves = timeline.curves if timeline is not None else {}
    on_gpu = report.run.device != "cpu"
    found = [name for name in (*(_GPU_CHARTS if on_gpu else ()), *_CHARTS) if name not in curves]
    of_gpu = curves["gpu"].values if "gpu" in curves else {}
    found += [name for name in ("sm", "tensor", "power") if on_gpu and "gpu" in curves and name not in of_gpu]
    if "starved" in found and not waits_for_batches(report):
        found.remove("starved")
    if not on_gpu:
        found.append("no_gpu")
    if report.run.steps and not report.lines:
        found.append("lines")
    if report.run.steps and not any(worker.workers for worker in report.workers) and "queue" in found:
        # Without workers there is no queue: nothing is missing.
        found.remove("queue")
    found.append("loss")
    return found


def remedy_outcome(remedy: RemedyState) -> Message:
    """What became of a remedy of the run's profile, in one line."""
    if remedy.state == "applied":
        live = tuple(
            message("remedy_state.told", name=name, value=tuple(told) if isinstance(told, list) else told)
            for name, told in remedy.live.items()
        )
        id = "remedy_state.applied_to" if live else "remedy_state.applied"
        more = {"live": live} if live else {}
        return Message(id, {"id": remedy.id, "value": _remedy_value(remedy.value), **more})
    if remedy.state == "reverted":
        return message("remedy_state.reverted", id=remedy.id, step=remedy.step, why=remedy.why)
    if remedy.state == "refused":
        return message("remedy_state.refused", id=remedy.id, why=remedy.why)
    return message("remedy_state.failed", id=remedy.id, why=remedy.why)


def _remedy_value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "on"
    return "on" if value is True else str(value)
