"""A stored run in one record: where the time of its steps went, and what bounds it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.diagnose.evidence import gather_evidence
from flatout.diagnose.findings import find_problems, name_bound, withhold_unsure
from flatout.diagnose.ledger import divide_step, with_delay
from flatout.diagnose.loaders import same_loaders, worker_costs
from flatout.diagnose.machine import machine_notices, machine_use, run_delay_ms, widen_gains
from flatout.diagnose.ranks import Rank, first_recordings, mean_step_ms, told, training_ranks
from flatout.diagnose.resources import gpu_use, host_use
from flatout.diagnose.sites import call_sites, slowest_lines, stage_costs, stage_notices
from flatout.diagnose.steady import steps_needed
from flatout.diagnose.verdict import (
    WORTH_FIXING,
    judge_bound,
    judge_costs,
    removable,
    with_findings,
    with_machine,
    with_needless,
    with_speed,
    with_steps,
)
from flatout.diagnose.windows import op_costs
from flatout.diagnose.work import ladder_of
from flatout.model.edits import Edits, ReadyBatches
from flatout.model.prediction import can_promise, model_of, predict
from flatout.records.evidence import Evidence
from flatout.records.message import Message, from_plain, message, restore, verbatim
from flatout.records.report import (
    PHASES,
    Finding,
    GpuUse,
    Overhead,
    PhaseShare,
    RankUse,
    RemedyState,
    RunFacts,
    RunReport,
    Snippet,
    Throughput,
    Warmup,
)
from flatout.store.run import StoredRun

_WORKER_LINES = 10
# Of a step's time: the text of lines below it is of no use.
_TOLD = 0.001
_MOST_SNIPPETS = 200
_DATA = PHASES.index("data")
_LIVE = ("torch", "loader", "optimizer")


def summarise_run(run: StoredRun) -> RunReport:
    """Read the whole run and say what it comes to. Needs neither torch nor a GPU."""
    return examine_run(run).report


def examine_run(run: StoredRun) -> Evidence:
    """The same, with everything that detectors and the checklist look at."""
    ranks = training_ranks(run)
    evidence = gather_evidence(run, ranks, _measure(run, ranks))
    shown = evidence.worker_lines[:_WORKER_LINES]
    evidence = replace(evidence, report=replace(evidence.report, worker_lines=shown, snippets=_snippets(evidence)))
    if not evidence.report.run.steps:
        return evidence
    trouble: list[Message] = []
    evidence = _judge_costs(evidence)
    report, warmup = evidence.report, evidence.report.warmup
    found = find_problems(evidence, trouble)
    trouble += _not_reproduced(evidence, found)
    withheld: tuple[Finding, ...] = ()
    if warmup is not None:
        found, withheld = withhold_unsure(found, warmup.step_error)
        trouble = [*_few_steps(warmup, withheld), *trouble]
        found = name_bound(found, withheld, report.verdict)
    found = widen_gains(found, report.machine)
    trouble = [*machine_notices(report.machine), *trouble]
    verdict = with_machine(with_findings(report.verdict, found), report.machine)
    verdict = with_needless(verdict, evidence.needless_ms, evidence.step_ms)
    judged = replace(
        report,
        findings=found,
        verdict=with_steps(verdict, warmup),
        notices=(*report.notices, *trouble),
    )
    return replace(evidence, report=judged, withheld=withheld)


def _judge_costs(evidence: Evidence) -> Evidence:
    """The verdict by what the run itself could save, as far as its step time is known.

    Taking a ready batch from a worker costs time as well, and workers are late as long as others have the processors.
    Work of the training thread needs no such rule: others delay all of its lines alike.
    """
    report, warmup = evidence.report, evidence.report.warmup
    costs = removable(report.phases, report.gpu, evidence.on_gpu, evidence.ledger)
    own = min(costs.input, _saved_by_ready_batches(evidence))
    own = max(0.0, own - (evidence.late_by_others or 0.0))
    error = (warmup.step_error if warmup is not None else None) or 0.0
    verdict = judge_costs(replace(costs, input=own), evidence.step_ms, evidence.on_gpu, error)
    return replace(evidence, report=replace(report, verdict=with_speed(verdict, report.gpu)))


def _saved_by_ready_batches(evidence: Evidence) -> float:
    """Share of the step; all of it where the model does not tell."""
    loader = evidence.training_loader
    if evidence.on_gpu or loader is None or not can_promise(evidence):
        return 1.0
    gain = predict(evidence, Edits((ReadyBatches(evidence.starved_ms),), is_most=True))
    return 0.0 if gain is None else 1 - 1 / gain.mid


def _few_steps(warmup: Warmup, withheld: Sequence[Finding]) -> Iterator[Message]:
    """How many steps would tell the largest of the gains that are left out."""
    steps, error = warmup.steady_steps, warmup.step_error
    gains = [finding.predicted_gain.mid for finding in withheld if finding.predicted_gain is not None]
    needed = steps_needed(steps, error, max(gains, default=1 + WORTH_FIXING))
    if error is None:
        yield message("run.hardly_any_steps", steps=steps, needed=needed + warmup.steps)
    elif withheld:
        facts = {"withheld": len(withheld), "error": 100 * error, "needed": needed + warmup.steps}
        yield message("run.too_few_steps", steps=steps, **facts)


def _not_reproduced(evidence: Evidence, found: Sequence[Finding]) -> list[Message]:
    """Why findings come without a gain, where that is because the model does not give the measured step."""
    calibrated = model_of(evidence)
    if calibrated is None or calibrated.is_reproduced or all(finding.predicted_gain for finding in found):
        return []
    played_ms, step_ms = calibrated.played_ms, calibrated.model.step_ms
    return [message("model.not_reproduced", played_ms=played_ms, step_ms=step_ms)]


def _snippets(evidence: Evidence) -> tuple[Snippet, ...]:
    report = evidence.report
    lines = [line for line in (*evidence.all_lines, *evidence.worker_lines) if line.share >= _TOLD]
    places = dict.fromkeys([*report.sites, *(line.location for line in lines)])
    known = [Snippet(place, text) for place in places if (text := evidence.text_at(place))]
    return tuple(known[:_MOST_SNIPPETS])


def _measure(run: StoredRun, ranks: Sequence[Rank]) -> RunReport:
    """Everything but the findings."""
    live = _live(run, ranks)
    gpu = gpu_use(run, ranks)
    device = str(live["torch"].get("device_name") or "cpu")
    on_gpu = device != "cpu" or any(rank.recording.count("device") for rank in ranks)
    phases, step_ms, delay_ms = _phases(ranks), mean_step_ms(ranks), run_delay_ms(run, ranks)
    if gpu is not None and gpu.work:
        gpu = replace(gpu, ladder=ladder_of(run, device, gpu, step_ms))
    syncs, copies, pauses = call_sites(ranks)
    ledger, _ = divide_step(run, ranks, phases, op_costs(ranks, phases))
    return RunReport(
        run=_facts(run, ranks, live, device),
        throughput=_throughput(ranks),
        phases=phases,
        gpu=gpu,
        verdict=judge_bound(phases, step_ms, gpu, on_gpu, ledger),
        findings=(),
        overhead=_overhead(ranks),
        lines=slowest_lines(ranks, phases),
        syncs=syncs,
        copies=copies,
        workers=worker_costs(run, ranks),
        live=live,
        environment=run.manifest.environment,
        notices=(*notices(run, ranks, gpu, on_gpu), *stage_notices(ranks)),
        pauses=pauses,
        ranks=tuple(_rank_use(rank) for rank in ranks),
        warmup_steps=max((rank.warmup_steps for rank in ranks), default=0),
        host=host_use(run, ranks),
        stages=stage_costs(ranks, step_ms),
        remedies=remedy_states(run, ranks),
        warmup=max((rank.warmup for rank in ranks), key=lambda warmup: warmup.steps, default=None),
        machine=machine_use(run, ranks),
        parts=with_delay(ledger.shares, delay_ms / step_ms if delay_ms and step_ms else 0.0) if ledger.entries else {},
    )


def _facts(run: StoredRun, ranks: Sequence[Rank], live: dict[str, Any], device: str) -> RunFacts:
    manifest = run.manifest
    python = manifest.python or next((rank.recording.facts.get("python") for rank in ranks), None)
    return RunFacts(
        id=manifest.id,
        argv=manifest.argv,
        exit_code=manifest.exit_code,
        steps=max((rank.steps.total for rank in ranks), default=0),
        wall_s=_wall_s(run, ranks),
        ranks=len(ranks),
        device=device,
        torch=live["torch"].get("version"),
        python=python,
    )


def _wall_s(run: StoredRun, ranks: Sequence[Rank]) -> float:
    """By a clock that never steps back, where there is one; a calendar clock that did gives no negative time."""
    manifest = run.manifest
    if manifest.wall_s is not None:
        return manifest.wall_s
    if manifest.ended_unix_s is not None and manifest.ended_unix_s > manifest.started_unix_s:
        return manifest.ended_unix_s - manifest.started_unix_s
    lives_ns = [rank.last_seen_ns() - rank.started_ns for rank in ranks]
    return max(0, *lives_ns, 0) * 1e-9


def _throughput(ranks: Sequence[Rank]) -> Throughput:
    steps = [rank.steady.total / rank.steady.total_wall_s for rank in ranks if rank.steady.total_wall_s > 0]
    samples = [rank.steady.samples_per_s for rank in ranks]
    known = [rate for rate in samples if rate is not None]
    return Throughput(
        steps_per_s=float(np.mean(steps)) if steps else None,
        samples_per_s=sum(known) if known and len(known) == len(samples) else None,
    )


def _phases(ranks: Sequence[Rank]) -> dict[str, PhaseShare]:
    """Over the steady steps of all ranks; the shares add up to 1 and the milliseconds to the mean step."""
    total_s = np.sum([rank.steady.phase_total_s for rank in ranks], axis=0) if ranks else np.zeros(len(PHASES))
    wall_s = sum(rank.steady.total_wall_s for rank in ranks) or 1.0
    step_ms = mean_step_ms(ranks) or 0.0
    shares = (total_s / wall_s).tolist()
    return {name: PhaseShare(share, share * step_ms) for name, share in zip(PHASES, shares, strict=True)}


def _overhead(ranks: Sequence[Rank]) -> Overhead:
    """From the first steady step on: those of a window, which cost the most, are no steady ones."""
    since = [rank.steps.where(np.logical_or.accumulate(rank.is_steady)) for rank in ranks]
    steps = sum(part.total for part in since)
    wall_s = sum(part.total_wall_s for part in since)
    own_s = float(sum(part.own_s.sum() for part in since))
    if not steps or not wall_s or not np.isfinite(own_s):
        return Overhead(None, None)
    return Overhead(1e6 * own_s / steps, own_s / wall_s)


def _live(run: StoredRun, ranks: Sequence[Rank]) -> dict[str, Any]:
    """Settings as they were in the living objects of the first rank; the last text of an object counts."""
    recordings = first_recordings(run, ranks)
    texts = {what: [text for recording in recordings for text in told(recording, what)] for what in _LIVE}
    same = {number: first for recording in recordings for number, first in same_loaders(recording).items()}
    loaders = {value.get("id"): value for value in texts["loader"] if value.get("id") in same.values()}
    optimizers = {(value.get("id"), value.get("class")): value for value in texts["optimizer"]}
    return {
        "torch": texts["torch"][-1] if texts["torch"] else {},
        "loaders": list(loaders.values()),
        "optimizers": list(optimizers.values()),
    }


def _rank_use(rank: Rank) -> RankUse:
    steady = rank.steady
    per_step = 1e3 / steady.total if steady.total else 0.0
    return RankUse(
        rank=rank.number,
        host=rank.host,
        pid=rank.recording.facts.get("pid"),
        steps=rank.steps.total,
        step_ms=steady.step_ms,
        samples_per_s=steady.samples_per_s,
        phase_ms=dict(zip(PHASES, (steady.phase_total_s * per_step).tolist(), strict=True)),
        ended=rank.exit is not None,
    )


def notices(run: StoredRun, ranks: Sequence[Rank], gpu: GpuUse | None, on_gpu: bool) -> tuple[Message, ...]:
    """What the reader of a report must know about the recording: not measured, lost, broken off. Each said once."""
    lines: list[Message] = [
        *run.manifest.notices,
        *(from_plain(notice) for recording in run.recordings for notice in recording.values("notice")),
        *_broken_off(run, ranks),
        *_not_measured(ranks, gpu, on_gpu),
        *_speeds(ranks),
    ]
    # Last, because reading the files is what finds the unreadable ones.
    lines += [*_losses(run), *(message("run.file_left_out", why=verbatim(why)) for why in run.unreadable)]
    return tuple(dict.fromkeys(lines))


def _broken_off(run: StoredRun, ranks: Sequence[Rank]) -> Iterator[Message]:
    if run.manifest.exit_code in (None, 0) or len(ranks) < 2:
        return
    failed = [rank for rank in ranks if rank.exit is None or rank.exit.get("error")]
    if not failed:
        return
    if len({rank.host for rank in failed}) > 1:
        # Clocks of different hosts do not compare, so none can be called the first.
        yield message("run.ranks_ended_early", ranks=_names(failed))
        return
    ended_ns = {id(rank): int((rank.exit or {}).get("end_ns") or rank.last_seen_ns()) for rank in failed}
    first = min(failed, key=lambda rank: ended_ns[id(rank)])
    facts = {"rank": first.name, "steps": first.steps.total, "ending": _how_ended(run.manifest.exit_code)}
    error = first.exit.get("error") if first.exit else None
    if error:
        yield message("run.rank_failed_first_with", error=verbatim(str(error)), **facts)
    else:
        yield message("run.rank_failed_first", **facts)


def _how_ended(code: int | None) -> Message:
    if code is not None and code > 128:
        try:
            return message("run.exit_signal", code=code, signal=signal.Signals(code - 128).name)
        except ValueError:
            pass
    return message("run.exit_code", code=code)


def _names(ranks: Sequence[Rank]) -> tuple[str, ...]:
    return tuple(rank.name for rank in ranks)


def _not_measured(ranks: Sequence[Rank], gpu: GpuUse | None, on_gpu: bool) -> Iterator[Message]:
    unknown = [rank for rank in ranks if rank.steady.samples_per_s is None]
    if unknown:
        yield message("run.samples_not_measured", ranks=_names(unknown))
    if ranks and all(rank.lines is None for rank in ranks):
        yield message("run.lines_not_measured")
    waits = any(rank.steady.phase_total_s[_DATA] > 0 for rank in ranks)
    # Where kernels were recorded, the busy time is exact: nothing is missing.
    if waits and on_gpu and (gpu is None or (gpu.starved_share is None and gpu.kernels is None)):
        yield message("run.starvation_not_measured")
    if ranks and on_gpu and (gpu is None or gpu.util_mean is None):
        yield message("run.utilisation_not_measured")


def _speeds(ranks: Sequence[Rank]) -> Iterator[Message]:
    for rank in ranks[:1]:
        if rank.warmup.varied_ms is not None:
            fast_ms, slow_ms = rank.warmup.varied_ms
            yield message("run.speed_varied", fast_ms=fast_ms, slow_ms=slow_ms)


def _losses(run: StoredRun) -> Iterator[Message]:
    for recording in run.recordings:
        lost, process = recording.lost, str(recording.facts.get("pid", recording.path.stem))
        gaps = recording.count("gap")
        if lost.dropped_records and gaps:
            yield message("run.records_dropped_in_gaps", process=process, count=lost.dropped_records, gaps=gaps)
        elif lost.dropped_records:
            yield message("run.records_dropped", process=process, count=lost.dropped_records)
        if lost.damaged_slots or lost.broken_texts:
            yield message("run.records_damaged", process=process, records=lost.damaged_slots, texts=lost.broken_texts)
    for source in ("gpu", "host", "processes"):
        rows = run.rows(source)
        if rows is not None and rows.lost:
            yield message("run.rows_lost", rows=rows.lost, source=source)


def remedy_states(run: StoredRun, ranks: Sequence[Rank]) -> tuple[RemedyState, ...]:
    """What became of the remedies that a profile asked for: the last word of the first rank on each."""
    latest: dict[str, RemedyState] = {}
    for recording in first_recordings(run, ranks):
        for value in told(recording, "remedy"):
            if isinstance(value.get("id"), str):
                live = value.get("live")
                latest[value["id"]] = RemedyState(
                    id=value["id"],
                    safety=str(value.get("safety", "")),
                    value=value.get("value"),
                    state=str(value.get("state", "")),
                    why=restore(value.get("why", "")),
                    step=int(value.get("step") or 0),
                    live={name: restore(item) for name, item in live.items()} if isinstance(live, dict) else {},
                )
    return tuple(latest.values())
