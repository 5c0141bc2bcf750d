"""What the reader of a report must know about the recording: not measured, lost, broken off."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from flatout.diagnose.ranks import Rank
from flatout.records.report import GpuUse
from flatout.store.run import StoredRun


def notices(run: StoredRun, ranks: Sequence[Rank], gpu: GpuUse | None, on_gpu: bool) -> tuple[str, ...]:
    """One line each; the same line from many processes appears once."""
    lines = [*run.manifest.notices, *_recorded(run), *_broken_off(run, ranks), *_not_measured(ranks, gpu, on_gpu)]
    # Last, because reading the files is what finds the unreadable ones.
    lines += [*_losses(run), *(f"left out: {why}" for why in run.unreadable)]
    return tuple(dict.fromkeys(lines))


def _recorded(run: StoredRun) -> Iterator[str]:
    for recording in run.recordings:
        yield from (str(value) for value in recording.values("notice"))


def _broken_off(run: StoredRun, ranks: Sequence[Rank]) -> Iterator[str]:
    if run.manifest.exit_code in (None, 0) or len(ranks) < 2:
        return
    failed = [rank for rank in ranks if rank.exit is None or rank.exit.get("error")]
    if not failed:
        return
    if len({rank.host for rank in failed}) > 1:
        # Clocks of different hosts do not compare, so none can be called the first.
        yield f"{_names(failed)} did not come to a normal end"
        return
    first = min(failed, key=_broke_off_ns)
    error = f": {first.exit['error']}" if first.exit and first.exit.get("error") else ""
    code = run.manifest.exit_code
    yield f"{first.name} failed first, after {first.steps.total} steps{error} (the run ended with {_exit_words(code)})"


def _broke_off_ns(rank: Rank) -> int:
    return int(rank.exit["end_ns"]) if rank.exit and rank.exit.get("end_ns") else rank.last_seen_ns()


def _exit_words(code: int | None) -> str:
    if code is not None and code > 128:
        try:
            return f"exit code {code}, {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit code {code}"


def _names(ranks: Sequence[Rank]) -> str:
    return ", ".join(rank.name for rank in ranks)


def _not_measured(ranks: Sequence[Rank], gpu: GpuUse | None, on_gpu: bool) -> Iterator[str]:
    unknown = [rank for rank in ranks if rank.steady.samples_per_s is None]
    if unknown:
        yield f"samples/s not measured: the batch size could not be told ({_names(unknown)})"
    if ranks and all(rank.lines is None for rank in ranks):
        yield "slow lines not measured: the line sampler recorded nothing (too short a run, or switched off)"
    if ranks and on_gpu and (gpu is None or gpu.starved_share is None):
        yield "GPU starvation not measured: no step was timed on the device"
    if ranks and on_gpu and (gpu is None or gpu.util_mean is None):
        yield "GPU utilisation not measured"


def _losses(run: StoredRun) -> Iterator[str]:
    for recording in run.recordings:
        lost, name = recording.lost, f"process {recording.facts.get('pid', recording.path.stem)}"
        if lost.dropped_records:
            gaps = recording.count("gap")
            when = f" in {gaps} gap(s)" if gaps else ""
            yield f"{name}: {lost.dropped_records} records could not be written{when} (disk full?)"
        if lost.damaged_slots or lost.broken_texts:
            yield f"{name}: {lost.damaged_slots} records and {lost.broken_texts} texts are damaged and left out"
    for source in ("gpu", "host", "processes"):
        rows = run.rows(source)
        if rows is not None and rows.lost:
            yield f"telemetry: {rows.lost} rows of {source} are lost"
