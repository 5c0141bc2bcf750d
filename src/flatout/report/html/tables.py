"""The plain tables of a run's page: waits, copies, pauses, loaders, stages, ranks and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flatout.records.report import KernelUse, Location, RunReport
from flatout.records.timeline import Timeline
from flatout.report import text
from flatout.report.html.page import say

_MOST = 20
_MOST_KERNEL_LINES = 8
_NONE = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """`name` is a key of the words; figures stand at the right, places are code."""

    name: str
    number: bool = True
    code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


Shown = Callable[[Location], str]
_PLACE = Column("place", number=False, code=True)
_KIND = Column("kind", number=False)


def run_tables(report: RunReport, timeline: Timeline | None, shown: Shown) -> list[Table]:
    """Those that have something in them."""
    found = (
        _syncs(report, shown),
        _copies(report, shown),
        _pauses(report, shown),
        _loaders(report),
        _stages(report),
        _ranks(report),
        _processes(timeline),
    )
    return [table for table in found if table.rows]


def kernel_lines(kernels: KernelUse, shown: Shown) -> Table:
    """The lines of the script that launch the most; empty where lines could not be seen."""
    rows = [
        (shown(line.location), line.phase or _NONE, text.milliseconds(line.ms))
        for line in kernels.lines[:_MOST_KERNEL_LINES]
    ]
    return Table("kernel_lines", (_PLACE, Column("phase", number=False), Column("time_a_step")), tuple(rows))


def _syncs(report: RunReport, shown: Shown) -> Table:
    rows = [
        (
            shown(sync.location),
            sync.op,
            text.figure(sync.per_step),
            text.told(sync.ms, text.milliseconds),
        )
        for sync in report.syncs[:_MOST]
    ]
    return Table("syncs", (_PLACE, _KIND, Column("per_step"), Column("time_a_step")), tuple(rows))


def _copies(report: RunReport, shown: Shown) -> Table:
    columns = (_PLACE, Column("per_step"), Column("time_a_step"), Column("size"), Column("pinned"), Column("async"))
    rows = [
        (
            shown(copy_site.location),
            text.figure(copy_site.per_step),
            text.milliseconds(copy_site.ms),
            text.gibibytes(copy_site.bytes_per_step)
            if copy_site.bytes_per_step >= 1 << 20
            else f"{copy_site.bytes_per_step / 1024:.0f} KiB",
            text.percent(copy_site.pinned_share),
            text.percent(copy_site.non_blocking_share),
        )
        for copy_site in report.copies[:_MOST]
    ]
    return Table("copies", columns, tuple(rows))


def _pauses(report: RunReport, shown: Shown) -> Table:
    rows = [
        (shown(pause.location), pause.op, f"{pause.count:,}", _seconds(pause.total_s), _seconds(pause.max_s))
        for pause in report.pauses[:_MOST]
    ]
    return Table("pauses", (_PLACE, _KIND, Column("times"), Column("in_all"), Column("longest")), tuple(rows))


def _loaders(report: RunReport) -> Table:
    names = ("loader", "workers", "samples", "fetch", "collate", "slowest_batch", "busy", "batches_ready", "start_up")
    rows = [
        (
            str(worker.loader),
            str(worker.workers),
            f"{worker.samples:,}",
            text.milliseconds(worker.fetch_ms_per_sample),
            text.milliseconds(worker.collate_ms_per_sample),
            text.milliseconds(worker.slowest_batch_ms),
            text.told(worker.busy_share, text.percent),
            _NONE if worker.queue_depth is None else f"{worker.queue_depth:.1f}",
            text.told(worker.startup_s, text.duration),
        )
        for worker in report.workers[:_MOST]
    ]
    return Table("loaders", tuple(Column(name) for name in names), tuple(rows))


def _stages(report: RunReport) -> Table:
    names = ("parameters", "forward", "backward", "share", "if_twice", "if_free")
    rows = [
        (
            stage.name,
            f"{stage.parameters:,}",
            text.milliseconds(stage.forward_ms),
            text.told(stage.backward_ms, text.milliseconds),
            text.told(stage.share, text.percent),
            text.told(stage.if_twice, text.ratio),
            text.told(stage.if_free, text.ratio),
        )
        for stage in report.stages or ()
    ]
    return Table("stages", (Column("stage", number=False, code=True), *(Column(name) for name in names)), tuple(rows))


def _ranks(report: RunReport) -> Table:
    """One rank is no table."""
    names = ("steps", "time_a_step", "samples_per_s", "wait_a_step")
    rows = [
        (
            _NONE if rank.rank is None else str(rank.rank),
            rank.host or _NONE,
            f"{rank.steps:,}",
            text.told(rank.step_ms, text.milliseconds),
            text.told(rank.samples_per_s, text.figure),
            text.milliseconds(rank.phase_ms.get("data", 0.0)),
        )
        for rank in report.ranks
    ]
    columns = (Column("rank", number=False), Column("host", number=False), *(Column(name) for name in names))
    return Table("ranks", columns, tuple(rows) if len(rows) > 1 else ())


def _processes(timeline: Timeline | None) -> Table:
    names = ("cores", "memory_peak", "reads", "threads", "lived")
    rows = list(_process_rows(timeline)) if timeline is not None else []
    return Table("processes", (Column("pid", number=False), _KIND, *(Column(name) for name in names)), tuple(rows))


def _process_rows(timeline: Timeline) -> Iterator[tuple[str, ...]]:
    for process in timeline.processes:
        yield (
            str(process.pid),
            say(f"chart_series_{process.role}"),
            _NONE if process.cpu_cores is None else f"{process.cpu_cores:.2f}",
            text.told(process.memory_peak_bytes, text.gibibytes),
            _NONE if process.read_bytes_per_s is None else f"{text.gibibytes(process.read_bytes_per_s)}/s",
            _NONE if process.threads is None else f"{process.threads:.0f}",
            f"{process.first_s:.0f} – {process.last_s:.0f} s",
        )
    if timeline.more_processes:
        yield (f"+ {timeline.more_processes:,}", *[_NONE] * 6)


def _seconds(seconds: float) -> str:
    """Minutes in all, or milliseconds each."""
    return text.milliseconds(1e3 * seconds) if seconds < 1.0 else text.duration(seconds)
