"""How often does a search of `flatout fix` keep something on a script that needs nothing?

    python -m benchmarks.healthy_search --pool FILE [--trials 60] [--searches 2000] [SCRIPT ARGS...]

The bare script is run some dozen times, in real processes; these trials are kept in the pool. Then the search itself,
with its own rules and its proof, is given a plan of real remedies over and over, and each trial it asks for is drawn
from the pool, none twice in a search. No remedy can do anything, since none is in force: whatever is kept is a false
alarm, made of nothing but what real processes differ by. Time never runs out, so an open verdict gets all its repeats.

With a gain planted in one remedy the same searches show what the rule still finds.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.common.child import CHILDREN
from benchmarks.common.results import RESULTS, table, write
from benchmarks.common.trial_pool import BUDGET_S, Pool, grown, read
from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.plan import Wishes
from flatout.experiment.proof import prove_profile
from flatout.experiment.request import Request
from flatout.experiment.search import Search
from flatout.experiment.trial_reader import without_long
from flatout.experiment.turns import Arms
from flatout.problems.catalogue import problems
from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain, RemedyState, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known
from tests.cases.evidence import HERE, run

MOST_KEPT = 0.05
_PLANTED_IN = "gc.defer"
_LAUNCHING = "graphs.model"
PLANS = {
    "two": (_PLANTED_IN, "loader.prefetch"),
    # Where trials leave these undecided they take turns with and without them in one process.
    "resting": (_PLANTED_IN, "loader.pin", "transfer.async", "memory.keep"),
    # Judged apart from what processes differ by in all their steps.
    "pausing": ("loader.persistent", "checkpoint.async"),
    # Those that promise nothing, and are tried with each other where they are not sure by themselves.
    "launching": (_LAUNCHING, "precision.tf32", "precision.bf16"),
    "many": (
        *(_PLANTED_IN, "loader.prefetch", "loader.persistent", "loader.cache", "loader.workers", "autograd.plain"),
        *("checkpoint.async", "sync.skip", "optimizer.fused", "precision.tf32"),
    ),
}
_SHUFFLED, _AS_MADE = "at random", "as made"
_GAINS = (1.03, 1.05, 1.1, 1.2, 2.0)
_HEAD = ["plan", "trials drawn", "searches", "kept anything", "95% interval", "before the proof", "remedies judged"]
_HEAD += ["trials a search"]
_CONTROL = ["planted gain", "searches", "found", "95% interval"]


class Dry(Exception):
    """A search asked for more trials than there are."""


class Drawing:
    """Stands where trials are made: gives those of the pool, in this order, under any name. `gains` are planted."""

    def __init__(self, pool: Pool, trials: Sequence[Trial], gains: Mapping[str, float], seed: int = 0) -> None:
        self._others = pool.others
        self._turns = pool.turns
        self._asked_arms: Arms = ()
        self._random = random.Random(seed)
        self._left: Iterator[Trial] = iter(trials)
        self._gains = gains

    def __call__(self, request: Request) -> Trial:
        trial = self._drawn(request)
        faster = math.prod(self._gains.get(name, 1.0) for name in request.remedies)
        self._asked_arms = request.arms
        return replace(
            trial,
            arm=request.arm,
            remedies=dict(request.remedies),
            step_s=tuple(step_s / faster for step_s in trial.step_s),
            states=_applied(request.remedies),
        )

    def _drawn(self, request: Request) -> Trial:
        asked = {"look": request.with_lines, "compute": bool(request.replays)}
        # Which turns it has is drawn by `in_turns`.
        asked |= {"feed": request.feeds, "look": request.with_lines or bool(request.arms)}
        for name, is_asked in asked.items():
            if is_asked:
                return self._others[name]
        trial = next(self._left, None)
        if trial is None:
            raise Dry
        # One with perturbed weights is as fast as any other.
        return replace(trial, losses=self._others["perturbed"].losses) if request.perturbed else trial

    def in_turns(self, trial: Trial) -> dict[str, Trial]:
        """Turns of one of the processes, each round's given to the arms anew. None if there are too few."""
        if not self._turns or len(self._asked_arms) > len(self._turns[0]):
            return {}
        process = self._random.choice(self._turns)
        rounds = [self._random.sample(turns, len(self._asked_arms)) for turns in zip(*process, strict=True)]
        return {
            name: replace(
                trial, arm=name, step_s=without_long(arm), samples=(), pause_s=(), losses=(), states=_applied(remedies)
            )
            for (name, remedies), arm in zip(self._asked_arms, zip(*rounds, strict=True), strict=True)
        }


def _applied(remedies: Mapping[str, object]) -> tuple[RemedyState, ...]:
    return tuple(RemedyState(name, known()[name].safety, value, "applied") for name, value in remedies.items())


@dataclass(frozen=True, slots=True)
class Searched:
    """`first` is what the search kept before its proof, `kept` what was left of it."""

    first: tuple[str, ...]
    kept: tuple[str, ...]
    judged: int
    trials: int
    is_dry: bool = False
    # The user would have got a traceback.
    failure: str = ""


def planted(names: Sequence[str]) -> RunReport:
    """A run with a finding for each of these remedies."""
    codes = {problem.remedy: problem for problem in problems() if problem.remedy}
    codes |= {name: problem for problem in problems() for name in names if problem.code in known()[name].answers}
    is_on_gpu = _LAUNCHING in names
    gain = None if is_on_gpu else Gain(1.2, 1.2, 1.2, verbatim("given"))
    planted_cause = verbatim("planted")
    findings = [
        Finding(
            codes[name].code, "x", codes[name].title, "high", HERE, {"workers": 2}, planted_cause, name, None, gain
        )
        for name in names
    ]  # fmt: skip
    report = replace(run().report, findings=tuple(findings))
    return replace(report, run=replace(report.run, device="GPU")) if is_on_gpu else report


def searched(
    pool: Pool, trials: Sequence[Trial], names: Sequence[str], gains: Mapping[str, float], seed: int = 0
) -> Searched:
    """One search, as `flatout fix` makes it."""
    wishes = Wishes(("numeric",), only=tuple(names))
    drawing = Drawing(pool, trials, gains, seed)
    report = planted(names)
    bench, _ = take_first_look(Settings((pool.script,), wishes, BUDGET_S), drawing, lambda look: report)
    search = Search(bench, lambda look: report, drawing.in_turns)
    first: tuple[str, ...] = ()
    is_dry, failure = False, ""
    try:
        search.run(report)
        first = tuple(search.found.profile)
        if first:
            prove_profile(bench, search)
    except Dry:
        is_dry = True
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    judged = sum(one.decision is not None for one in search.found.tried)
    return Searched(first, tuple(search.found.profile), judged, len(bench.made.all), is_dry, failure)


@dataclass(frozen=True, slots=True)
class Job:
    """Searches of one kind. `seeds` are places to begin at where the trials come as they were made."""

    plan: str
    drawn: str
    seeds: tuple[int, ...]
    gain: float = 1.0


def made(job: Job, pool: Pool) -> list[Searched]:
    return [_one(job, pool, seed) for seed in job.seeds]


def _one(job: Job, pool: Pool, seed: int) -> Searched:
    trials = list(pool.trials)
    if job.drawn == _AS_MADE:
        trials = trials[seed:] + trials[:seed]
    else:
        random.Random(seed).shuffle(trials)
    return searched(pool, trials, PLANS[job.plan], {_PLANTED_IN: job.gain}, seed)


def wilson(count: int, total: int) -> tuple[float, float]:
    """A 95% interval for a share, of this many draws."""
    z, share = 1.96, count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (middle - half) / (1 + z * z / total)), min(1.0, (middle + half) / (1 + z * z / total))


def row(job: Job, found: Sequence[Searched]) -> list[str]:
    kept, first = (sum(map(bool, ones)) for ones in ([one.kept for one in found], [one.first for one in found]))
    means = [statistics.mean(one.judged for one in found), statistics.mean(one.trials for one in found)]
    shares = [f"{kept} ({kept / len(found):.1%})", _interval(kept, len(found)), f"{first}"]
    return [job.plan, job.drawn, f"{len(found)}", *shares, *(f"{mean:.1f}" for mean in means)]


def control(job: Job, found: Sequence[Searched]) -> list[str]:
    hits = sum(_PLANTED_IN in one.kept for one in found)
    return [f"{job.gain - 1:.0%}", f"{len(found)}", f"{hits / len(found):.0%}", _interval(hits, len(found))]


def _interval(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{low:.1%} to {high:.1%}"


def described(pool: Pool) -> str:
    """What the pool is like: without that the figures below say nothing."""
    rates = [math.log(statistics.median(trial.step_s)) for trial in pool.trials]
    steps = [1e3 * statistics.median(trial.step_s) for trial in pool.trials]
    return (
        f"{len(pool.trials)} trials of {pool.script} in processes of their own, {len(pool.trials[0].step_s)} steps of "
        f"{statistics.median(steps):.1f} ms each ({min(steps):.1f} to {max(steps):.1f} from trial to trial, standard "
        f"deviation {100 * statistics.stdev(rates):.1f}%; from one trial to the next "
        f"{100 * _next_to_next(rates):.1f}%), load of the machine {min(pool.loads):.1f} to {max(pool.loads):.1f}; "
        f"and {len(pool.turns)} processes in which arms without remedies took turns."
    )


def _next_to_next(rates: Sequence[float]) -> float:
    """The spread of neighbours: with no drift it is that of all."""
    squares = [(one - other) ** 2 / 2 for one, other in pairwise(rates)]
    return math.sqrt(statistics.mean(squares))


def jobs(pool: Pool, searches: int) -> list[Job]:
    places, seeds = tuple(range(len(pool.trials))), tuple(range(searches))
    nothing = [Job(plan, drawn, of) for plan in PLANS for drawn, of in ((_SHUFFLED, seeds), (_AS_MADE, places))]
    return nothing + [Job("two", _SHUFFLED, seeds[: max(50, searches // 10)], gain) for gain in _GAINS]


def all_made(pool: Pool, wanted: Sequence[Job], processes: int) -> dict[Job, list[Searched]]:
    """In several processes, a few searches at a time."""
    parts = [
        (job, replace(job, seeds=job.seeds[at : at + 20])) for job in wanted for at in range(0, len(job.seeds), 20)
    ]
    found: dict[Job, list[Searched]] = {job: [] for job in wanted}
    with ProcessPoolExecutor(processes) as workers:
        results = workers.map(made, [part for _, part in parts], [pool] * len(parts))
        for (job, _), more in zip(parts, results, strict=True):
            found[job] += more
            print(f"{job.plan}, {job.drawn}, {job.gain:g}: {len(found[job])}", file=sys.stderr, flush=True)
    return found


def page(pool: Pool, found: Mapping[Job, Sequence[Searched]]) -> str:
    nothing = {job: ones for job, ones in found.items() if job.gain == 1.0}
    planted_in = {job: ones for job, ones in found.items() if job.gain != 1.0}
    dry = sum(one.is_dry for ones in found.values() for one in ones)
    failed = Counter(one.failure for ones in found.values() for one in ones if one.failure)
    failures = "".join(f"{count} searches failed: {why}.\n" for why, count in failed.items())
    return "\n".join(
        [
            described(pool),
            "",
            "The search and its proof, on trials drawn from these. No remedy is in force in any of them, so whatever",
            "is kept is a false alarm. Drawn as made, searches begin at each trial and go on in the order of time.",
            "",
            table(_HEAD, [row(job, ones) for job, ones in nothing.items()]),
            "The intervals are of the drawing: all searches share one pool, and another machine has another.",
            f"{dry} searches asked for more trials than the pool has, and end there with what they had kept.",
            failures,
            "",
            f"The same with every step of the trials under {_PLANTED_IN} made shorter: how often that is found.",
            "",
            table(_CONTROL, [control(job, ones) for job, ones in planted_in.items()]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True, help="where the trials are kept; made if it is not there")
    parser.add_argument("--trials", type=int, default=60, help="trials to have in the pool at least")
    parser.add_argument("--turns", type=int, default=10, help="processes in which arms took turns, likewise")
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("command", nargs="*", default=[str(CHILDREN / "healthy.py"), "0", "1"], metavar="SCRIPT ARGS")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.trials:
        grown(options.pool, tuple(options.command), options.trials, options.turns, lambda: os.getloadavg()[0])
    pool = read(options.pool)
    found = all_made(pool, jobs(pool, options.searches), options.processes)
    figures = [{"job": replace(job, seeds=()), "searches": ones} for job, ones in found.items()]
    text = page(pool, found)
    write("healthy-search", {"pool": replace(pool, trials=(), others={}), "found": figures}, text, options.results)
    print(text)
    failed = sum(bool(one.failure) for ones in found.values() for one in ones)
    if failed:
        raise SystemExit(f"{failed} searches failed")
    alarms = [job for job, ones in found.items() if job.gain == 1.0 and _share(ones) > MOST_KEPT]
    if alarms:
        raise SystemExit(f"more than {MOST_KEPT:.0%} of searches kept something: {[(j.plan, j.drawn) for j in alarms]}")


def _share(found: Sequence[Searched]) -> float:
    return sum(bool(one.kept) for one in found) / len(found)


if __name__ == "__main__":
    main()
