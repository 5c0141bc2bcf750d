"""`flatout compare`: stored runs of the same script against each other, and a gate for continuous integration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.comparison import compare_findings, compare_phases, compare_settings
from flatout.diagnose.ranks import Rank, training_ranks
from flatout.diagnose.summary import examine_run
from flatout.errors import FlatoutError
from flatout.experiment.statistics.intervals import measure_gain, with_interval
from flatout.launch.terminal import detect_stdout, write_json
from flatout.records.comparison import Arm, Compared, Comparison, Gate, Judgement
from flatout.records.message import Message, message
from flatout.records.proof import MeasuredGain
from flatout.records.report import PHASES, RunReport
from flatout.records.trial import Trial
from flatout.report.compare import render, to_json
from flatout.store.directory import find_run
from flatout.store.run import StoredRun, script_name

Floats = NDArray[np.float64]

# Records of a very long run that are looked at one by one; beyond, neighbours are taken together.
_MOST_ROWS = 1 << 17
_PAUSES = [PHASES.index("eval"), PHASES.index("checkpoint")]


@dataclass(frozen=True, slots=True)
class _ArmRuns:
    """An arm with all that was read of its runs."""

    arm: Arm
    reports: tuple[RunReport, ...]
    trials: tuple[Trial, ...]
    notices: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What was asked for: the runs, a gate for their speed, and the files to write beside what is printed."""

    names: Sequence[str]
    fail_below: str | None = None
    root: Path | None = None
    # A file, or "-" for stdout alone.
    json_file: str | None = None
    html: Path | None = None
    language: str = "en"
    quiet: bool = False


def run_compare(request: CompareRequest) -> tuple[str, int]:
    """The text to print and the exit code: 1 if the gate fails."""
    found = compare_runs(request.names, request.fail_below, request.root)
    if request.html is not None:
        # Templates take their time to import, and few want them.
        from flatout.app.report import write_page
        from flatout.report.html.compare_page import compare_page

        write_page(compare_page(found), request.html, request.language)
    code = 1 if found.gate is not None and found.gate.failed else 0
    if request.json_file == "-":
        return json.dumps(to_json(found), indent=2) + "\n", code
    if request.json_file is not None:
        write_json(request.json_file, to_json(found))
    screen = detect_stdout(width=100)
    page = render(found, width=screen.width, color=screen.color, unicode=screen.unicode, quiet=request.quiet)
    return page, code


def compare_runs(names: Sequence[str], fail_below: str | None = None, root: Path | None = None) -> Compared:
    """Each of the others against the first. A name may be several runs joined by commas: they are one arm."""
    least = None if fail_below is None else least_ratio(fail_below)
    arms = [_read_arm(name, root) for name in names]
    seen: set[Path] = set()
    for path in (path for read in arms for path in read.arm.runs):
        # A run may be named by its name, by a path, by a link.
        place = Path(path).resolve()
        if place in seen:
            raise FlatoutError(f"{path!r} is named twice: a run compared with itself says nothing")
        seen.add(place)
    comparisons = tuple(_compare_arms(arms[0], other) for other in arms[1:])
    disturbed = tuple(notice for read in arms for notice in _on_machine(read))
    return Compared(comparisons, None if least is None else _gate(comparisons, least), disturbed)


def _on_machine(read: _ArmRuns) -> Iterator[Message]:
    for run, report in zip(read.arm.runs, read.reports, strict=True):
        if report.machine is not None and report.machine.disturbed:
            yield message("machine.run_disturbed", run=Path(run).name, sentence=report.machine.sentence)


def least_ratio(text: str) -> float:
    """`-3%` is 0.97. The sign has to be there: 3% could mean either."""
    match = re.fullmatch(r"([+-]\d+(?:\.\d+)?)\s*%", text.strip())
    if match is None or float(match[1]) <= -100:
        raise FlatoutError(f"--fail-below must be a percentage with its sign, above -100%, such as -3%; got {text!r}")
    return 1.0 + float(match[1]) / 100.0


def _gate(comparisons: Sequence[Comparison], least: float) -> Gate:
    """Fails only what is surely slower: the whole 95% interval lies below.

    Two intervals are looked at, each with 2.5% of chance beyond its upper end, so an arm that is exactly at the limit
    fails in one of twenty comparisons at most.
    """
    failed = []
    for comparison in comparisons:
        gains = [gain for gain in (comparison.gain, comparison.ordinary_gain) if gain is not None]
        if not gains:
            shorter = min(comparison.before, comparison.after, key=lambda arm: arm.steps).name
            raise FlatoutError(f"run {shorter!r} has too few steps after warm-up for a rate; let it run longer")
        if any(gain.high < least for gain in gains):
            failed.append(comparison.after.name)
    return Gate(least, tuple(failed))


def _read_arm(name: str, root: Path | None) -> _ArmRuns:
    runs = [StoredRun(path) for path in _paths(name, root)]
    ranks = [training_ranks(run) for run in runs]
    for run, trained in zip(runs, ranks, strict=True):
        if not trained:
            raise FlatoutError(f"run {run.id!r} has no training step, so there is nothing to compare")
    reports = tuple(examine_run(run).report for run in runs)
    rates = [report.throughput for report in reports]
    steps_per_s, samples_per_s = _mean([r.steps_per_s for r in rates]), _mean([r.samples_per_s for r in rates])
    first = reports[0]
    arm = Arm(
        name=runs[0].id if len(runs) == 1 else f"{runs[0].id} +{len(runs) - 1}",
        runs=tuple(str(run.path) for run in runs),
        script=script_name(first.run.argv),
        device=first.run.device,
        ranks=first.run.ranks,
        steps=sum(trained[0].steady.total for trained in ranks),
        steps_per_s=steps_per_s,
        samples_per_s=samples_per_s,
        step_ms=1e3 / steps_per_s if steps_per_s else None,
        samples_per_step=samples_per_s / steps_per_s if samples_per_s is not None and steps_per_s else None,
        bound=first.verdict.bound,
        sentence=first.verdict.sentence,
    )
    trials = tuple(
        replace(trial_of(run.id, trained), machine=report.machine)
        for run, trained, report in zip(runs, ranks, reports, strict=True)
    )
    return _ArmRuns(arm, reports, trials, tuple(_run_notices(runs)))


def _paths(name: str, root: Path | None) -> list[Path]:
    """A folder whose own name has a comma in it is one run."""
    words = [name] if "," not in name or Path(name).is_dir() else name.split(",")
    paths = [find_run(word.strip(), root) for word in words if word.strip()]
    if not paths:
        raise FlatoutError(f"{name!r} names no run")
    return paths


def _run_notices(runs: Sequence[StoredRun]) -> Iterator[Message]:
    yield from (message("compare.run_going_on", run=run.id) for run in runs if run.is_running)
    for run in runs:
        if run.manifest.exit_code:
            yield message("compare.run_failed", run=run.id, code=run.manifest.exit_code)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def trial_of(name: str, ranks: Sequence[Rank]) -> Trial:
    """The steady steps of a run as those of a trial. All ranks take a step together: their samples add up."""
    shared = ranks[0].steady.index
    for rank in ranks[1:]:
        shared = np.intersect1d(shared, rank.steady.index)
    rows = [rank.steady for rank in ranks]
    picks = [np.isin(steps.index, shared) for steps in rows]
    wall_s = np.mean([steps.wall_s[pick] for steps, pick in zip(rows, picks, strict=True)], axis=0)
    samples = np.sum([steps.samples[pick] for steps, pick in zip(rows, picks, strict=True)], axis=0)
    pause_s = np.mean(
        [steps.phase_s[pick][:, _PAUSES].sum(axis=1) for steps, pick in zip(rows, picks, strict=True)], axis=0
    )
    grouped = _even(rows[0].count[picks[0]], wall_s, samples, np.asarray(pause_s, np.float64))
    step_s, per_step, pauses = (tuple(values.tolist()) for values in grouped)
    return Trial(arm=name, remedies={}, ending="finished", step_s=step_s, samples=per_step, pause_s=pauses)


def _even(count: Floats, *columns: Floats) -> list[Floats]:
    """A row a step; where records hold several steps, rows of about equally many, as the mean of their steps."""
    if not len(count):
        return list(columns)
    size = max(float(count.max()), float(-(-count.sum() // _MOST_ROWS)))
    if size == 1.0:
        return list(columns)
    group = ((np.cumsum(count) - count) // size).astype(np.intp)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    steps = np.add.reduceat(count, starts)
    return [np.add.reduceat(column, starts) / steps for column in columns]


def _compare_arms(before: _ArmRuns, after: _ArmRuns) -> Comparison:
    whole = measure_gain(before.trials, after.trials, by="total")
    judgement, sentence = _judge(whole, before.arm.name, after.arm.name)
    gone, new, stayed = compare_findings(before.reports, after.reports)
    found = Comparison(
        before=before.arm,
        after=after.arm,
        judgement=judgement,
        sentence=sentence,
        gain=whole,
        ordinary_gain=measure_gain(before.trials, after.trials, by="blocks"),
        phases=compare_phases(before.reports, after.reports, (before.arm.samples_per_step, after.arm.samples_per_step)),
        settings=compare_settings(before.reports[0], after.reports[0]),
        gone=gone,
        new=new,
        stayed=stayed,
    )
    return replace(found, notices=(*_notices(found), *before.notices, *after.notices))


def _judge(whole: MeasuredGain | None, before: str, after: str) -> tuple[Judgement, Message]:
    if whole is None:
        return "not measured", message("compare.not_measured", before=before, after=after)
    facts = {"before": before, "after": after, "gain": with_interval(whole), "unit": whole.unit}
    if whole.low > 1.0:
        return "faster", message("compare.faster", **facts)
    if whole.high < 1.0:
        return "slower", message("compare.slower", **facts)
    return "no sure difference", message("compare.no_difference", **facts)


def _notices(comparison: Comparison) -> Iterator[Message]:
    before, after = comparison.before, comparison.after
    if len(before.runs) == len(after.runs) == 1:
        yield message("compare.one_process", before=before.name, after=after.name)
    if before.script != after.script:
        yield message("compare.scripts_differ", before=before.script, after=after.script)
    if before.device != after.device:
        yield message("compare.devices_differ", before=before.device, after=after.device)
    if not comparison.same_batch:
        yield message("compare.batches_differ", before=before.samples_per_step, after=after.samples_per_step)
    if comparison.gain is not None and comparison.gain.unit == "step":
        yield message("compare.by_steps")
