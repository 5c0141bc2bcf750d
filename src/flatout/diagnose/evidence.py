"""Gathers what detectors look at: the report, the loaders as they lived, and telemetry over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.diagnose.growth import find_growing_work
from flatout.diagnose.ledger import divide_step
from flatout.diagnose.loaders import main_cpu_share, process_use, same_loaders, waits, worker_pids
from flatout.diagnose.machine import other_processes_share
from flatout.diagnose.ranks import Floats, Rank, told
from flatout.diagnose.resources import (
    device_ms_by_rank,
    evaluations,
    gpu_states,
    memory_by_role,
    oom_kill,
    parts_ms_by_rank,
    totals,
)
from flatout.diagnose.settings import read_configuration
from flatout.diagnose.sites import call_paths, line_samples, slowest_lines
from flatout.diagnose.source_text import DATA_PARALLEL, FLOAT64, THREADS, first_match, source_lines, whole_file
from flatout.diagnose.windows import (
    backward_again,
    find_holders,
    growing_calls,
    heavy_lines,
    needless_calls,
    op_costs,
    other_forms,
    picked_parts,
    picked_tables,
    summed_pairs,
)
from flatout.diagnose.work import hand_attention
from flatout.diagnose.workers import (
    bytes_from_workers,
    caches,
    carried_by_workers,
    file_bytes,
    ledger_of_workers,
    narrow_copies,
    own_stream_copies,
    padding,
    worker_lines,
)
from flatout.records.evidence import Evidence, LoaderUse, Series, StepMemory, ThreadTimes
from flatout.records.report import PHASES, LineCost, Location, RunReport
from flatout.store.run import StoredRun

# Points of a series that a detector gets at most: a trend needs no more.
_MOST_POINTS = 600
_MOST_LINES = 300
# From here on a collection was of all objects: the young ones are looked through within microseconds.
_COLLECTED_S = 0.002
_GC = PHASES.index("gc")
# Waits and pauses of the training thread. Steps that tell how its own work differs from one to the next.
_NOT_OWN = [PHASES.index(name) for name in ("data", "sync", "eval", "checkpoint", "logging")]
_MOST_SPREAD = 256
# Of a step's time, from which a line's file is read whole; and how many such files.
_DEAR, _MOST_FILES = 0.0005, 20
# Series of one value a tick: name, source, column.
_PLAIN = (
    ("cpu_share", "host", "cpu_share"),
    ("iowait_share", "host", "iowait_share"),
    ("load_1min", "host", "load_1min"),
    ("memory_available_bytes", "host", "memory_available_bytes"),
    ("swap_used_bytes", "host", "swap_used_bytes"),
    ("major_faults_per_s", "host", "major_faults_per_s"),
    ("io_pressure_percent", "host", "io_pressure_percent"),
    ("memory_pressure_percent", "host", "memory_pressure_percent"),
    ("shm_used_bytes", "host", "shm_used_bytes"),
    ("throttled_s", "cgroup", "throttled_s"),
    ("cgroup_memory_bytes", "cgroup", "memory_current_bytes"),
    ("cgroup_cache_bytes", "cgroup", "memory_cache_bytes"),
    ("oom_kills", "cgroup", "oom_kills"),
    ("nfs_read_bytes_per_s", "network", "read_bytes_per_s"),
)
# Series summed over all processes, disks or GPUs of a moment.
_SUMMED = (
    ("rss_bytes", "processes", "rss_bytes"),
    ("read_bytes_per_s", "processes", "read_bytes_per_s"),
    ("gpu_memory_bytes", "gpu", "own_memory_bytes"),
    ("gpu_memory_total_bytes", "gpu", "memory_total_bytes"),
    ("gpu_util_percent", "gpu", "util_percent"),
    ("gpu_power_w", "gpu", "power_w"),
    ("gpu_sm_clock_mhz", "gpu", "sm_clock_mhz"),
    ("gpu_throttle_bits", "gpu", "throttle_bits"),
    ("gpu_temperature_c", "gpu", "temperature_c"),
    ("disk_busy_share", "disks", "busy_share"),
)


def gather_evidence(run: StoredRun, ranks: Sequence[Rank], report: RunReport) -> Evidence:
    """Everything a detector may look at."""
    loaders = _loaders(run, ranks, report)
    training = next((use for use in loaders if use.trains), None)
    lines = slowest_lines(ranks, report.phases, _MOST_LINES)
    in_workers = worker_lines(run, ranks, training)
    gpus = gpu_states(run, ranks)
    costs = op_costs(ranks, report.phases)
    ledger, interpreter = divide_step(run, ranks, report.phases, costs)
    return Evidence(
        report=replace(report, worker_ledger=ledger_of_workers(run, ranks, training)),
        loaders=loaders,
        cpus=_cpus(report.environment),
        samples_per_step=_samples_per_step(report),
        series=_series(run, ranks),
        waiting=waits(ranks, training),
        main_cpu_share=main_cpu_share(run, ranks),
        all_lines=lines,
        source=source_lines(run, [*(line.location for line in (*lines, *in_workers)), *report.sites]),
        evaluations=evaluations(run, ranks, lines),
        oom_kill=oom_kill(run),
        gpus=gpus,
        rank_device_ms=device_ms_by_rank(ranks),
        rank_parts_ms=parts_ms_by_rank(ranks),
        data_parallel_at=first_match(run, lines, DATA_PARALLEL) if len(gpus) > 1 and len(ranks) == 1 else None,
        files=_files(run, lines) | _files(run, in_workers),
        worker_lines=in_workers,
        caches=caches(run, ranks, training),
        file_bytes=file_bytes(run, ranks, training),
        torch_states=tuple(state for rank in ranks[:1] for state in told(rank.recording, "torch")),
        optimizers_met=sum(len(rank.recording.values("optimizer")) for rank in ranks[:1]),
        median_step_ms=_median_step_ms(ranks),
        collecting_share=_collecting_share(ranks),
        configured=read_configuration(run, loaders),
        narrow_copies=narrow_copies(ranks),
        own_stream_copies=own_stream_copies(ranks),
        padding=padding(ranks, training),
        line_looks=line_samples(ranks),
        compile_ms=_compile_ms(ranks),
        ledger=ledger,
        op_costs=costs,
        step_spread=_step_spread(ranks),
        needless_calls=needless_calls(ranks, report.phases),
        backward_again=backward_again(ranks, report.phases),
        hand_attention=hand_attention(ranks),
        step_memory=_step_memory(ranks),
        holders=find_holders(run, ranks),
        float64_at=_float64_at(run, report, lines),
        picked_tables=picked_tables(ranks, report.phases),
        picked_parts=picked_parts(ranks, report.phases),
        summed_pairs=summed_pairs(ranks),
        other_forms=other_forms(ranks),
        heavy_lines=heavy_lines(ranks),
        growing_calls=growing_calls(ranks, report.phases),
        interpreter=interpreter,
        growing_work=find_growing_work(ranks, ledger),
        call_paths=call_paths(ranks, report.phases),
        thread_times=_thread_times(run, ranks, lines),
        beside_share=max(other_processes_share(run, ranks), 0.0 if interpreter is None else interpreter.run_share),
    )


def _float64_at(run: StoredRun, report: RunReport, lines: Sequence[LineCost]) -> Location | None:
    torch: dict[str, Any] = report.live.get("torch", {})  # type: ignore[assignment]
    if "float64" not in (torch.get("grad_dtypes") or {}):
        return None
    matches = (first_match(run, lines, pattern) for pattern in FLOAT64)
    return next((place for place in matches if place is not None), None)


def _thread_times(run: StoredRun, ranks: Sequence[Rank], lines: Sequence[LineCost]) -> ThreadTimes | None:
    for rank in ranks[:1]:
        for timed in told(rank.recording, "threads")[-1:]:
            few_ms, many_ms = timed["ms"]
            return ThreadTimes(
                threads=int(timed["threads"]),
                processors=int(timed["processors"]),
                few_ms=float(few_ms),
                many_ms=float(many_ms),
                location=first_match(run, lines, THREADS),
            )
    return None


def _step_memory(ranks: Sequence[Rank]) -> StepMemory | None:
    for rank in ranks[:1]:
        notes = told(rank.recording, "memory")
        if not notes or not len(rank.steady):
            return None
        pairs = zip(notes[-1].get("steps", ()), notes[-1].get("bytes", ()), strict=False)
        steady = [(float(step), float(size)) for step, size in pairs if step >= rank.first_steady]
        return StepMemory(tuple(step for step, _ in steady), tuple(size for _, size in steady))
    return None


def _files(run: StoredRun, lines: Sequence[LineCost]) -> dict[str, str]:
    """Those of the lines that cost most of the time."""
    names = list(dict.fromkeys(line.location.file for line in lines if line.share > _DEAR))[:_MOST_FILES]
    texts = {name: whole_file(run, name) for name in names}
    return {name: text for name, text in texts.items() if text}


def _compile_ms(ranks: Sequence[Rank]) -> float | None:
    known = [(rank.compile_s, rank.steady.total) for rank in ranks]
    each = [1e3 * seconds / steps for seconds, steps in known if seconds is not None and steps]
    return float(np.mean(each)) if each else None


def _median_step_ms(ranks: Sequence[Rank]) -> float | None:
    each = [rank.steady.wall_s / np.maximum(rank.steady.count, 1.0) for rank in ranks]
    joined = np.concatenate(each) if each else np.empty(0)
    return 1e3 * float(np.median(joined)) if len(joined) else None


def _step_spread(ranks: Sequence[Rank]) -> tuple[float, ...]:
    """Of the first rank, a stretch from the middle of its steady steps."""
    if not ranks or not len(ranks[0].steady):
        return ()
    steady = ranks[0].steady
    first = max(0, (len(steady) - _MOST_SPREAD) // 2)
    chosen = slice(first, first + _MOST_SPREAD)
    own_s = steady.wall_s[chosen] - steady.phase_s[chosen][:, _NOT_OWN].sum(axis=1, dtype=np.float64)
    own_s = np.maximum(own_s / steady.count[chosen], 0.0)
    mean = float(own_s.mean())
    return tuple((own_s / mean).tolist()) if mean > 0 else ()


def _collecting_share(ranks: Sequence[Rank]) -> float | None:
    each = [rank.steady.phase_s[:, _GC] > _COLLECTED_S for rank in ranks]
    joined = np.concatenate(each) if each else np.empty(0)
    return float(joined.mean()) if len(joined) else None


def _cpus(environment: dict[str, Any]) -> float:
    allowed = environment.get("cpus_allowed") or environment.get("cpus") or 1
    return min(float(allowed), environment.get("cpu_quota_cores") or math.inf)


def _samples_per_step(report: RunReport) -> float | None:
    rates = report.throughput
    if rates.samples_per_s is None or not rates.steps_per_s:
        return None
    return rates.samples_per_s / rates.steps_per_s / max(1, report.run.ranks)


def _loaders(run: StoredRun, ranks: Sequence[Rank], report: RunReport) -> tuple[LoaderUse, ...]:
    if not ranks:
        return ()
    recording = ranks[0].recording
    same = same_loaders(recording)
    made = Counter(same.values())
    costs = {cost.loader: cost for cost in report.workers}
    processes = process_use(run, ranks, worker_pids(ranks))
    training = _training(report, same, costs)
    numbers = [same.get(int(number), int(number)) for number in recording.column("epoch", "loader").tolist()]
    took_s = (recording.column("epoch", "end_ns") - recording.column("epoch", "start_ns")).astype(np.float64) * 1e-9
    handed_over, carried = bytes_from_workers(recording, same), carried_by_workers(run, ranks)
    uses = []
    for settings in report.live.get("loaders", []):  # type: ignore[attr-defined]
        number = int(settings["id"])
        of_this = np.array([loader == number for loader in numbers], bool)
        uses.append(
            LoaderUse(
                number=number,
                settings=settings,
                made_at=_place(settings),
                trains=number == training,
                cost=costs.get(number),
                epochs=int(of_this.sum()),
                iterator_s=float(np.median(took_s[of_this])) if of_this.any() else None,
                made=made[number],
                processes=processes.get(number),
                batch_bytes=handed_over.get(number),
                carried=carried.get(number),
            )
        )
    return tuple(uses)


def _training(report: RunReport, same: dict[int, int], costs: dict[int, Any]) -> int | None:
    """The loader that feeds the training: of those a backward followed, the one that gave most samples."""
    torch: dict[str, Any] = report.live.get("torch", {})  # type: ignore[assignment]
    fed = {same.get(number, number) for number in torch.get("training_loaders", [])} or set(costs)
    return max(fed, key=lambda number: costs[number].samples if number in costs else 0, default=None)


def _place(settings: dict[str, Any]) -> Location | None:
    if not settings.get("file"):
        return None
    return Location(str(settings["file"]), int(settings.get("line") or 0))


def _series(run: StoredRun, ranks: Sequence[Rank]) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for name, source, column in _PLAIN:
        rows = run.rows(source)
        if rows is not None:
            _add(found, name, rows.column("t_s"), rows.column(column))
    for name, source, column in _SUMMED:
        rows = run.rows(source)
        if rows is not None:
            _add(found, name, *totals(rows.column("t_s"), rows.column(column)))
    for name, (t_s, values) in memory_by_role(run, ranks).items():
        _add(found, name, t_s, values)
    return found


def _add(found: dict[str, Series], name: str, t_s: Floats, values: Floats) -> None:
    known = np.isfinite(values)
    if not known.any():
        return
    t_s, values = t_s[known], values[known]
    every = -(-len(values) // _MOST_POINTS)
    found[name] = Series(tuple((t_s[::every] - t_s[0]).tolist()), tuple(values[::every].tolist()))
