"""What would `flatout fix` do with so much time on a machine where every process takes long to start?

    python -m benchmarks.rehearsal [--budget 4m] [--start 12] [--processes 0.06] [--searches 20] [--only NAME ...] [-v]

The search and its proof are the real ones, the clock and the trials are not: a model of each workload says what a step
takes under a profile, from what was measured on a GPU, and processes differ by chance. So a plan can be judged before
it costs time on a real one: what it finds of what there is, what it spends its time on, and by how much it overdraws.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.common.results import table
from benchmarks.common.spent import Spent, by_kind, each
from flatout.app.demo import FOLDER
from flatout.cli.options import seconds_of
from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.plan import Wishes
from flatout.experiment.proof import conclude, prove_profile
from flatout.experiment.request import Request
from flatout.experiment.search import Search
from flatout.experiment.sizing import settling
from flatout.problems.catalogue import problems
from flatout.records.fix import Fix, Quality
from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain, Location, RemedyState, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known
from flatout.remedies.loader.probe import DRAWS_OTHERS
from flatout.words import english
from tests.cases.evidence import HERE, run

Profile = Mapping[str, Any]
_CORES = 16
_LATE = {"precision.bf16": 4, "transfer.async": 18, "transfer.prefetch": 6}
_HEAD = ["workload", "kept something", "of the gain there is", "gain said", "sure to ±", "trials", "took s", "most s"]
_HEAD += ["kept", "quality"]


@dataclass(frozen=True, slots=True)
class Workload:
    """`make_s` is what one process needs to make a step's batch, `device_s` what the rest of the step takes."""

    make_s: float
    device_s: float
    workers: int = 0
    # How many times as fast the device's part is with each, and what it takes off a step in seconds.
    faster: tuple[tuple[str, float], ...] = ()
    saves_s: tuple[tuple[str, float], ...] = ()
    # Findings of a first look, and those that only show when the batches come in time.
    first: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    epoch_steps: int | None = None
    draws_others: bool = False
    repeats_itself: bool = False

    def step_s(self, profile: Profile, is_fed: bool = True, is_alone: bool = False) -> float:
        workers = profile.get("loader.workers", self.workers)
        workers = _CORES - 4 if workers == "auto" else workers
        device_s = self.device_s - sum(seconds for name, seconds in self.saves_s if name in profile)
        device_s /= math.prod(times for name, times in self.faster if name in profile)
        feed_s = self.make_s / max(1, min(workers, _CORES - 2))
        if is_alone:
            return feed_s
        if not is_fed:
            return device_s
        return device_s + feed_s if workers == 0 else max(device_s, feed_s)

    def best_s(self, allowed: Callable[[str], bool]) -> float:
        names = [name for name, _ in (*self.faster, *self.saves_s) if allowed(name)]
        return self.step_s({"loader.workers": "auto", **dict.fromkeys(names, True)})


_NUMERIC = ("precision.bf16", 1.5), ("precision.tf32", 1.05), ("optimizer.fused", 1.08)
_FLAGS = ("precision.tf32", "optimizer.fused")
WORKLOADS = {
    "gray_cnn": Workload(0.117, 0.019, 0, _NUMERIC, first=("loader.workers",), later=_FLAGS, draws_others=True),
    "avatar_splat": Workload(
        0.0756, 0.080, 0, (("optimizer.fused", 1.1), ("precision.tf32", 1.1)), (("sync.skip", 0.01),),
        first=("loader.workers",), later=("sync.skip", "optimizer.fused", "precision.tf32"),
    ),
    "spike_deblur": Workload(
        1.6, 0.41, 2, _NUMERIC, first=("loader.workers", "loader.persistent"), later=_FLAGS, draws_others=True,
    ),
    "bev_seg": Workload(
        0.62, 0.097, 2, _NUMERIC, (("transfer.async", 0.006),), draws_others=True,
        first=("loader.workers", "loader.pin", "transfer.async"), later=_FLAGS,
    ),
    "heatmap_npy": Workload(
        0.02, 1.2, 2, (("optimizer.fused", 1.01),), (("memo.function", 1.1),),
        first=("memo.function", "optimizer.fused"), epoch_steps=20, repeats_itself=True,
    ),
    # Nothing helps it, whatever is tried.
    "healthy": Workload(
        0.02, 0.1, 2,
        first=("gc.defer", "sync.skip", "loader.prefetch", "loader.persistent", "loader.workers", *_FLAGS),
    ),
}  # fmt: skip
_TARGETS = Location(str(FOLDER / "heatmap_npy" / "slider" / "engine.py"), 130)


class Machine:
    """Makes trials by the model, on a clock of its own."""

    def __init__(self, workload: Workload, start_s: float, processes: float, seed: int) -> None:
        self._workload = workload
        self._start_s = start_s
        self._processes = processes
        self._draw = np.random.default_rng(seed)
        self.now_s = 0.0
        self.spent: list[Spent] = []
        self._asked: dict[str, Request] = {}

    def clock(self) -> float:
        return self.now_s

    def __call__(self, request: Request) -> Trial:
        luck = math.exp(self._draw.normal(0, self._processes))
        ordinary_s = self._each(request) * luck
        in_all = self._count(request, ordinary_s)
        step_s = ordinary_s[:in_all]
        counted = step_s[min(max(request.warm_up, self._from(request), self._settled(request)), in_all // 2) :]
        start_s = self._start_s * math.exp(self._draw.normal(0, 0.1))
        wall_s = start_s + float(step_s.sum())
        self.now_s += wall_s + 0.4
        states = tuple(self._state(name, value) for name, value in request.remedies.items())
        trial = Trial(
            request.arm,
            dict(request.remedies),
            "stopped",
            step_s=tuple(counted.tolist()),
            samples=(8.0,) * len(counted),
            losses=tuple(self._losses(request, in_all)),
            weights=None,
            steps=in_all,
            states=states,
            wall_s=wall_s,
            run=str(len(self.spent)),
        )
        self._asked[trial.run] = request
        median_ms = 1e3 * float(np.median(counted)) if len(counted) else None
        before_s = wall_s - float(counted.sum())
        self.spent.append(
            Spent(request.arm, dict(request.remedies), "stopped", "", len(counted), median_ms, before_s, wall_s, {})
        )
        return trial

    def _each(self, request: Request) -> Any:
        """Seconds of all the steps that it may make."""
        mean_s = self._workload.step_s(request.remedies, not request.replays, request.feeds)
        seconds = np.full(request.steps, mean_s) * np.exp(self._draw.normal(0, 0.05, request.steps))
        late = self._from(request)
        if late and not request.feeds:
            seconds[:late] *= self._workload.step_s({}) / mean_s if late > 7 else 1.0
        if request.arms:
            mix = [self._workload.step_s({**request.remedies, **arm}) for _, arm in request.arms]
            seconds *= float(np.mean(mix)) / mean_s
        return seconds

    def _count(self, request: Request, seconds: Any) -> int:
        """As the trial itself would end: enough steps and time, or all the time there is."""
        passed = np.cumsum(seconds)
        most = min(request.steps, max(8, int(np.searchsorted(passed, request.seconds)) + 1))
        if request.enough is None:
            return most
        steps, counted_from, window_s = request.enough
        begun_s = passed[min(counted_from, len(passed)) - 1]
        return min(most, max(steps, int(np.searchsorted(passed, begun_s + window_s)) + 1))

    def _from(self, request: Request) -> int:
        late = [_LATE.get(name, 0) for name in request.remedies]
        if "memo.function" in request.remedies:
            late.append((self._workload.epoch_steps or 0) + 8)
        is_climbing = request.remedies.get("loader.workers") == "auto" and not request.workers
        return max([*late, 8 if is_climbing else 0])

    def _settled(self, request: Request) -> int:
        step_s = self._workload.step_s(request.remedies)
        return 0 if request.workers else settling(request.remedies.items(), step_s)

    def _state(self, name: str, value: Any) -> RemedyState:
        others = name == "loader.workers" and self._workload.draws_others
        live: dict[str, Any] = {"randomness": DRAWS_OTHERS} if others else {}
        if (name, value) == ("loader.workers", "auto"):
            live["train.py:1"] = f"num_workers {self._workload.workers} → {_CORES - 4}"
        if name == "memo.function":
            live["hits_from_step"] = (self._workload.epoch_steps or 0) + 8
        return RemedyState(name, known()[name].safety, value, "applied", step=_LATE.get(name, 1), live=live)

    def _losses(self, request: Request, steps: int) -> Sequence[float]:
        """Curves part a little more with each step unless the script repeats itself."""
        is_other = request.perturbed or request.reseeded or not self._workload.repeats_itself
        is_other = is_other or any(known()[name].safety == "numeric" for name in request.remedies)
        far = 1e-3 if is_other else 0.0
        walk = np.cumsum(self._draw.normal(0, far, steps)) / math.sqrt(max(1, steps))
        return list(2.0 / (1 + 0.02 * np.arange(steps)) * (1 + walk))

    def report(self, trial: Trial) -> RunReport:
        request = self._asked[trial.run]
        work = self._workload
        is_fed = work.step_s(request.remedies) < 1.1 * work.step_s(request.remedies, is_fed=False)
        names = [*work.first, *(work.later if is_fed else ())]
        loader: dict[str, Any] = {"torch": {"training_loaders": [1]}}
        loader["loaders"] = [{"id": 1, "dataset_len": work.epoch_steps, "batch_sampler_size": 1}]
        needs_none = is_fed and work.faster  # a healthy one is told to get more all the same
        findings = tuple(_finding(name) for name in names if not (name == "loader.workers" and needs_none))
        return replace(run().report, findings=findings, live=loader if work.epoch_steps else {})

    def in_turns(self, trial: Trial) -> dict[str, Trial]:
        request = self._asked[trial.run]
        return {
            name: replace(
                trial,
                arm=name,
                step_s=tuple(
                    (
                        self._workload.step_s({**request.remedies, **arm}) * np.exp(self._draw.normal(0, 0.01, 6))
                    ).tolist()
                ),
                samples=(),
                states=tuple(RemedyState(one, known()[one].safety, None, "applied") for one in arm),
            )
            for name, arm in request.arms
        }


def _finding(name: str) -> Finding:
    problem = next(one for one in problems() if one.remedy == name)
    ratio = 1.5 if name in ("loader.workers", "memo.function") else 1.1
    gain = Gain(ratio, ratio, ratio, verbatim("given"))
    evidence: dict[str, Any] = {"workers": 8}
    where = _TARGETS if name == "memo.function" else HERE
    return Finding(problem.code, "x", problem.title, "high", where, evidence, verbatim("planted"), name, None, gain)


@dataclass(frozen=True, slots=True)
class Searched:
    fix: Fix
    spent: tuple[Spent, ...]
    took_s: float
    # Of the way from the bare script's time to the best there is, in logarithms; None where there is none to go.
    reached: float | None


def searched(name: str, options: argparse.Namespace, seed: int) -> Searched:
    work, wishes = WORKLOADS[name], Wishes(tuple(options.allow))
    machine = Machine(work, options.start, options.processes, seed)
    settings = Settings(("train.py",), wishes, seconds_of("--budget", options.budget, "s"))
    bench, report = take_first_look(settings, machine, machine.report, machine.clock)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)
    quality = prove_profile(bench, search) if search.found.profile else Quality()
    fix = conclude(bench, search, report, quality)
    best_s = work.best_s(lambda one: wishes.refusal(known()[one]) is None)
    there_is = math.log(work.step_s({}) / best_s)
    reached = math.log(work.step_s({}) / work.step_s(fix.profile)) / there_is if there_is > 0.01 else None
    return Searched(fix, tuple(machine.spent), machine.now_s, reached)


def row(name: str, found: Sequence[Searched]) -> list[str]:
    kept = [one for one in found if one.fix.profile]
    reached = [one.reached for one in found if one.reached is not None]
    gains = [one.fix.gain for one in kept if one.fix.gain is not None]
    names: dict[str, int] = {}
    for one in kept:
        for remedy in one.fix.profile:
            names[remedy] = names.get(remedy, 0) + 1
    said: dict[str, int] = {}
    for one in kept:
        quality = one.fix.quality
        words = "/".join(part.verdict for part in (quality.identity, quality.envelope) if part) or "nothing"
        said[words] = said.get(words, 0) + 1
    return [
        name,
        f"{len(kept)} of {len(found)}",
        f"{100 * statistics.mean(reached):.0f}%" if reached else "–",
        f"×{statistics.median(gain.mid for gain in gains):.2f}" if gains else "–",
        f"{100 * statistics.median(gain.high / gain.low for gain in gains) ** 0.5 - 100:.0f}%" if gains else "–",
        f"{statistics.mean(len(one.spent) for one in found):.1f}",
        f"{statistics.mean(one.took_s for one in found):.0f}",
        f"{max(one.took_s for one in found):.0f}",
        ", ".join(f"{remedy} {count}" for remedy, count in names.items()),
        ", ".join(f"{words} {count}" for words, count in said.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--start", type=float, default=12.0, help="seconds that a process takes to its first step")
    parser.add_argument(
        "--processes", type=float, default=0.06, help="standard deviation of what two of them differ by"
    )
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--allow", nargs="*", default=["numeric"])
    parser.add_argument("-v", "--verbose", action="store_true", help="show the trials of each workload's first search")
    options = parser.parse_args()
    rows = []
    for name in options.only or WORKLOADS:
        found = [searched(name, options, seed) for seed in range(options.searches)]
        rows.append(row(name, found))
        if options.verbose:
            print(f"\n{name}\n", each(found[0].spent), by_kind(found[0].spent, found[0].took_s), sep="\n")
            for one in found[0].fix.tried:
                print(one.planned.id, one.planned.value, one.state, english(one.why))
            quality = found[0].fix.quality
            sentences = [one.sentence for one in (quality.identity, quality.envelope) if one]
            print(*map(english, (found[0].fix.ended, *sentences)), sep="; ")
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(table(_HEAD, rows))


if __name__ == "__main__":
    main()
