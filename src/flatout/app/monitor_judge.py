"""What the figures of a watch mean, in words: against the usual targets, and honest about what they cannot say.

Utilisation counts any kernel, however small, so a high figure is checked against power and SM activity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flatout.records.monitor import GpuStatus, GpuSummary, HostSummary, Spread

_UTIL_TARGET_PERCENT = 85
_UTIL_ROOM_PERCENT = 60
_UTIL_IDLE_PERCENT = 5
_FLUCTUATION_TARGET_POINTS = 10
_LIGHT_SHARE = 0.5
_FEWEST_READINGS = 5
NO_COMPLAINT: tuple[GpuStatus, ...] = ("on target", "too short", "not measured")


def judge_gpu(spreads: Mapping[str, Spread | None], fluctuation: float | None) -> tuple[GpuStatus, str]:
    """One status and one sentence from utilisation, its fluctuation, power and SM activity."""
    util = spreads["util_percent"]
    if util is None or fluctuation is None:
        return "not measured", "utilisation was not measured"
    ran = f"some kernel ran {util.mean:.0f}% of the time"
    if util.count < _FEWEST_READINGS:
        return "too short", f"{ran} in {util.count} readings, too few for a verdict: watch longer"
    if util.mean < _UTIL_IDLE_PERCENT:
        return "idle", f"next to idle: {ran}"
    if util.mean < _UTIL_ROOM_PERCENT:
        return "idle", f"{ran}: the GPU waits for something else about {100 - util.mean:.0f}% of the time"
    if util.mean < _UTIL_TARGET_PERCENT:
        return "room", f"{ran}, below the usual target of 85-95%: there is room"
    light = _light(spreads)
    if light:
        return "light", f"{ran}, but {light}: small kernels or memory traffic, not a fully used GPU"
    if fluctuation >= _FLUCTUATION_TARGET_POINTS:
        return "unsteady", f"{ran} on average, but it fluctuates by {fluctuation:.0f} points (target: below 10)"
    return "on target", f"{ran}, steadily: within the usual targets (85-95%, fluctuation below 10 points)"


def _light(spreads: Mapping[str, Spread | None]) -> str:
    """Why a busy GPU is not a fully used one; empty when power and SM activity agree, or are not measured."""
    parts = {
        "power was {:.0f}% of its limit": spreads["power_share"],
        "SMs were {:.0f}% active": spreads["sm_active_share"],
    }
    low = [text.format(s.mean * 100) for text, s in parts.items() if s is not None and s.mean < _LIGHT_SHARE]
    return " and ".join(low)


def notes_of(gpus: Sequence[GpuSummary], host: HostSummary) -> tuple[str, ...]:
    """What else deserves a line: memory, heat, throttling, a busy or starved host."""
    # A main process that waits for a busy GPU spins at a full core: that is no news.
    is_gpu_busy = any(gpu.status in ("on target", "light", "unsteady") for gpu in gpus)
    return tuple(note for gpu in gpus for note in _gpu_notes(gpu)) + tuple(_host_notes(host, is_gpu_busy))


def _gpu_notes(gpu: GpuSummary) -> Iterator[str]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is not None and total:
        peak = used.high / total
        if peak >= 0.95:
            yield f"GPU {gpu.gpu}: memory peaked at {peak:.0%}: an out-of-memory error is near"
        elif peak < 0.5 and gpu.status not in NO_COMPLAINT:
            yield f"GPU {gpu.gpu}: memory peaked at {peak:.0%}: a larger batch fits; whether it pays, samples/s tell"
    if gpu.temperature_c is not None and gpu.temperature_c.high >= 80:
        yield f"GPU {gpu.gpu}: {gpu.temperature_c.high:.0f} °C at its hottest (target: below 80)"
    for reason, share in gpu.throttled.items():
        # At the power cap a GPU does as much as it may: that is the target, not a fault.
        if share >= 0.05 and reason != "power cap":
            yield f"GPU {gpu.gpu}: clocks held down by {reason} in {share:.0%} of readings"


def _host_notes(host: HostSummary, is_gpu_busy: bool) -> Iterator[str]:
    if host.cpu_share is not None and host.cpu_share.mean > 0.9:
        yield f"CPU {host.cpu_share.mean:.0%} busy on average: no cores are left; more workers will not help"
    if host.iowait_share is not None and host.iowait_share.mean > 0.1:
        yield f"cores waited for storage {host.iowait_share.mean:.0%} of the time: the data may be read too slowly"
    if host.memory_used_share is not None and host.memory_used_share.high > 0.9:
        yield f"system memory peaked at {host.memory_used_share.high:.1%}: smaller caches or fewer workers are safer"
    if host.main_cpu_share is not None and host.main_cpu_share.mean >= 0.95 and not is_gpu_busy:
        share = host.main_cpu_share.mean
        yield f"the main process used {share:.0%} of a core (usual: 50-80%): Python itself may be the limit"
    if host.worker_cpu_share is not None and host.worker_cpu_share.mean >= 0.9:
        cores = f", {host.cpus_allowed:g} cores allowed" if host.cpus_allowed is not None else ""
        yield f"each worker used {host.worker_cpu_share.mean:.0%} of a core: CPU-bound ({host.workers} workers{cores})"
