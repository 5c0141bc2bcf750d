"""Reads a trial back from its recording and its output: how it ended, how fast it was, what it wrote and computed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from flatout.attach.trial.sandbox.overlay import MIRROR
from flatout.diagnose.ranks import Rank, Steps
from flatout.diagnose.resources import oom_kill
from flatout.diagnose.summary import summarise_run
from flatout.experiment.process import Exit
from flatout.experiment.request import Request
from flatout.experiment.sizing import settling
from flatout.records.evidence import OomKill
from flatout.records.message import NOTHING, Message, message, restore, verbatim
from flatout.records.report import PHASES, RemedyState
from flatout.records.trial import Ending, Trial
from flatout.remedies.catalogue import known, traits_of
from flatout.remedies.checkpoint.target_file import target_of
from flatout.remedies.traits import Bottleneck
from flatout.store.run import StoredRun

# Of a trial's files: what it printed, and the names of what it wrote.
OUTPUT, WRITTEN = "output.txt", "written.txt"
_MOST_WRITTEN = 1000
# Steps after a remedy's last change until it is taken to have settled.
_SETTLED = 5
# Of what a script prints, the end is read.
OUTPUT_BYTES = 4 << 20
_GIB = 1 << 30
_KILLED = 128 + 9
_VICTIMS = {"main": message("trial.the_training"), "worker": message("trial.a_worker")}
_OF_WORKER = "DataLoader worker"
_OF_MEMORY = re.compile(r"out ?of ?memory|MemoryError|DefaultCPUAllocator", re.I)
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")
# Torch puts it before the last words of a rank.
_RANKED = re.compile(r"\[rank\d+\]: ?")


def read_ending(
    ended: Exit, run: StoredRun, kept: Mapping[str, Any], is_trained: bool, losses: Sequence[float | None]
) -> tuple[Ending, Message]:
    """`kept` is what the trial told when it was stopped after its steps; empty where it was not."""
    if ended.cut == "out of memory":
        return ended.cut, message("trial.cut_off_for_memory", wall_s=ended.wall_s)
    if ended.cut is not None:
        return ended.cut, message("trial.cut_off", wall_s=ended.wall_s)
    if ended.code and not kept:
        return _failed(ended.code, run, _last_words(run.path / OUTPUT))
    if not is_trained:
        return "not trained", message("trial.no_step")
    for step, loss in enumerate(losses, 1):
        if loss is not None and not np.isfinite(loss):
            return "not finite", message("trial.loss_not_finite", step=step, loss=loss)
    return ("stopped" if kept else "finished"), NOTHING


def read_tail(output: Path) -> str:
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - OUTPUT_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _failed(code: int, run: StoredRun, last: str) -> tuple[Ending, Message]:
    killed = oom_kill(run)
    if killed is not None:
        who = _VICTIMS.get(_victim(code, killed, last), message("trial.a_process"))
        limit = _limit_bytes(run)
        if limit is None:
            return "out of memory", message("trial.killed", who=who)
        return "out of memory", message("trial.killed_at_limit", who=who, limit_gib=limit / _GIB)
    is_memory = code == _KILLED or _OF_MEMORY.search(last)
    why = verbatim(last) if last else message("trial.exit_code", code=code)
    return "out of memory" if is_memory else "crashed", why


def _victim(code: int, killed: OomKill, last: str) -> str:
    """A worker's end is an error of the training soon after, often before the next sample of what lives."""
    return "main" if code == _KILLED else "worker" if _OF_WORKER in last else killed.role or ""


def _limit_bytes(run: StoredRun) -> float | None:
    """Of the container's memory."""
    rows = run.rows("cgroup")
    known = (
        [] if rows is None else [limit for limit in rows.column("memory_limit_bytes").tolist() if np.isfinite(limit)]
    )
    return known[-1] if known else None


def _last_words(output: Path) -> str:
    """The error that ended it. Of several ranks it is the first: the others fail because that one is gone."""
    lines = [line.strip() for line in read_tail(output).splitlines() if line.strip()]
    ranked = [_RANKED.sub("", line) for line in lines if _RANKED.match(line)]
    of_ranks = [line for line in ranked if _ERROR.match(line)]
    errors = of_ranks[:1] or [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [""])[-1][:300]


# Arms that took turns within one process.

# A turn that took so many times the usual had something else in it.
_LONG_TURN = 2.0
_MOST_LONG = 0.25


def read_turns(trial: Trial, ranks: Sequence[Rank]) -> dict[str, Trial]:
    """By arm: a trial whose steps are the means of its turns. All ranks take turns together: the first one's count."""
    found = next(((figures, rank) for rank in ranks for figures in rank.recording.values("screening")), None)
    if found is None:
        return {}
    figures, rank = found
    times, _, pauses = read_steps(rank.steps)
    return {
        name: replace(
            trial,
            arm=name,
            step_s=without_long(
                training_seconds(seconds, figures["after"][name], int(figures["timed"]), times, pauses)
            ),
            samples=(),
            pause_s=(),
            losses=(),
            states=_states(figures["states"][name]),
        )
        for name, seconds in figures["seconds"].items()
    }


def training_seconds(
    seconds: Sequence[float], after: Sequence[int], timed: int, times: Any, pauses: Any
) -> list[float]:
    """Seconds a step of each turn without pauses and the long steps after them; turns with less than half left go."""
    found = []
    for step_s, first in zip(seconds, after, strict=True):
        own_s, paused_s = times[first : first + timed], pauses[first : first + timed]
        if paused_s.any():
            long = (paused_s > 0) | (own_s > _LONG_TURN * np.median(own_s))
            left = timed - int(long.sum())
            if 2 * left < timed:
                continue
            step_s = (step_s * timed - float(own_s[long].sum())) / left
        found.append(max(0.0, step_s))
    return found


def without_long(seconds: Sequence[float]) -> tuple[float, ...]:
    if not seconds:
        return ()
    usual = float(np.median(seconds))
    short = tuple(turn_s for turn_s in seconds if turn_s <= _LONG_TURN * usual)
    return short if len(short) >= (1.0 - _MOST_LONG) * len(seconds) else tuple(seconds)


def _states(told: Mapping[str, Any]) -> tuple[RemedyState, ...]:
    remedies = known()
    return tuple(
        RemedyState(name, remedies[name].safety, None, state, restore(why)) for name, (state, why) in told.items()
    )


# Steps, and the first of them that counts.


def read_steps(steps: Steps) -> tuple[Any, Any, Any]:
    """Seconds, samples and seconds of pause. A record may hold several steps: they share its time and samples."""
    counts = np.maximum(1, steps.count.astype(int))
    pauses = steps.phase_s[:, [PHASES.index("eval"), PHASES.index("checkpoint")]].sum(axis=1, dtype=np.float64)
    times, samples, pauses = (np.repeat(values / counts, counts) for values in (steps.wall_s, steps.samples, pauses))
    return times, samples, pauses


# With fewer there is none to give away.
_FEWEST_WITH_BACKLOG = 8
# Batches more or less at hand that are no stock, but how they happen to come.
_CHANCE = 2


def first_steady_step(steps: Steps, first: int) -> int:
    """From which step on no more lie ready than there do in the end; `first` at least, of the rest half at most."""
    ready: Any = np.repeat(steps.queue_depth, np.maximum(1, steps.count.astype(int)))[first:]
    if len(ready) < _FEWEST_WITH_BACKLOG or not np.isfinite(ready).all():
        return first
    usual = float(np.median(ready[-(len(ready) // 3) :]))
    if ready[0] <= usual + _CHANCE:
        return first
    return first + min(int(np.argmax(ready <= usual + _CHANCE / 2)), len(ready) // 2)


# The loaders alone.

NOT_FED = message("trial.loaders_unseen")


def read_loaders_alone(ranks: Sequence[Rank], settling: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds and samples of the batches of each step; NaN samples are not known. Empty where nothing was measured.

    The first `settling` steps are left out, half of all at most. No step is made before the slowest rank has its
    batches: that one's time counts.
    """
    found = [figures for rank in ranks for figures in rank.recording.values("feed")]
    if not found or len(found) < len(ranks):
        return (), ()
    steps = min(len(figures["seconds"]) for figures in found)
    times = max((np.asarray(figures["seconds"][:steps]) for figures in found), key=np.sum)
    samples = np.sum([np.asarray(figures["samples"][:steps], dtype=np.float64) for figures in found], axis=0)
    first = min(settling, steps // 2)
    return tuple(times[first:].tolist()), tuple(samples[first:].tolist())


# The whole trial.


def read_trial(request: Request, place: Path, ended: Exit, ranks: Sequence[Rank], scratch: Path) -> Trial:
    report = summarise_run(StoredRun(place))
    kept: dict[str, Any] = next((value for rank in ranks for value in rank.recording.values("trial")), {})
    in_force_from = _in_force_from(report.remedies, ranks, request.warm_up, is_found=bool(request.workers))
    step_s, samples, pause_s = _steps(ranks, max(request.warm_up, in_force_from))
    losses = tuple(None if loss is None else float.fromhex(loss) for loss in kept.get("losses", ()))
    ending, why = read_ending(ended, StoredRun(place), kept, bool(ranks), losses)
    metrics = _metrics(request.metric, place / OUTPUT)
    written, programs = _written(scratch / WRITTEN)
    if request.feeds:
        step_s, samples, pause_s = *read_loaders_alone(ranks, in_force_from), ()
        why = why or (NOTHING if step_s else NOT_FED)
    return Trial(
        arm=request.arm,
        remedies=dict(request.remedies),
        ending=ending,
        why=why,
        step_s=step_s,
        samples=samples,
        pause_s=pause_s,
        losses=losses,
        weights=kept.get("weights"),
        steps=kept.get("steps"),
        states=report.remedies,
        device_peak_bytes=report.gpu.memory_peak if report.gpu is not None else None,
        host_peak_bytes=report.host.memory_peak if report.host is not None else None,
        metric=metrics[-1] if metrics else None,
        metrics=metrics if (place / OUTPUT).stat().st_size <= OUTPUT_BYTES else (),
        written=written,
        uncontained=programs,
        wall_s=ended.wall_s,
        run=str(place),
        knobs=dict(request.knobs),
        machine=report.machine,
    )


def _steps(ranks: Sequence[Rank], warm_up: int) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Seconds, samples and pause of each step after warm-up. Ranks step together: the first one's time counts."""
    if not ranks:
        return (), (), ()
    times, samples, pauses = read_steps(ranks[0].steps)
    for rank in ranks[1:]:
        others = read_steps(rank.steps)[1]
        shared = min(len(samples), len(others))
        times, samples, pauses = times[:shared], samples[:shared] + others[:shared], pauses[:shared]
    # A run that ended early has no steps to give away.
    first = first_steady_step(ranks[0].steps, min(warm_up, len(times) // 2))
    return tuple(times[first:].tolist()), tuple(samples[first:].tolist()), tuple(pauses[first:].tolist())


def _in_force_from(states: Sequence[RemedyState], ranks: Sequence[Rank], warm_up: int, is_found: bool) -> int:
    """Some remedies look on for a while before they begin, or compile then: that is warm-up too."""
    late = (
        state for state in states if state.safety == "numeric" or traits_of(state.id).acts_on is Bottleneck.TRANSFER
    )
    begun = [state.step + _SETTLED for state in late if state.step]
    # Steps count from one, and the first of these is one that counts.
    hits = [int(str(state.live["hits_from_step"])) - 1 for state in states if state.live.get("hits_from_step")]
    times = read_steps(ranks[0].steps)[0] if ranks else ()
    step_s = max(1e-6, float(np.median(times))) if len(times) else 1.0
    if is_found:
        settled = _found_anew(states, warm_up, len(times))
    else:
        settled = settling(((state.id, state.value) for state in states), step_s)
    return max([*begun, *hits, settled])


def _found_anew(states: Sequence[RemedyState], warm_up: int, steps: int) -> int:
    """A loader may want other workers than were found before. What came before it had them does not count, if the
    greater part of the steps is left without it.
    """
    last = max((state.step or 0 for state in states if traits_of(state.id).self_tuning), default=0) + _SETTLED
    return last if _SETTLED < last < (warm_up + steps) / 2 else 0


def _metrics(pattern: str | None, output: Path) -> tuple[float, ...]:
    if pattern is None:
        return ()
    try:
        return tuple(float(figure) for figure in re.findall(pattern, read_tail(output)))
    except (TypeError, ValueError):
        return ()


def _written(file: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files by the script's own names, also renamed by another process, and programs that were not contained."""
    try:
        facts = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return (), ()
    noted = [fact["file"] for fact in facts if "file" in fact]
    files = file.parent / MIRROR
    lying = (f"/{path.relative_to(files)}" for path in files.rglob("*") if path.is_file())
    # A checkpoint that we write comes by way of a file of ours.
    names = (target_of(name) for name in chain(noted, lying))
    files_written = tuple(islice(dict.fromkeys(islice(names, 2 * _MOST_WRITTEN)), _MOST_WRITTEN))
    return files_written, tuple(dict.fromkeys(fact["program"] for fact in facts if "program" in fact))
