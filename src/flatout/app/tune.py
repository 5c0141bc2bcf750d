"""`flatout tune`: measure the script under settings of the user's knobs, and pick from what was measured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from flatout.app.run import run_name
from flatout.errors import FlatoutError
from flatout.experiment.calm import CalmWaiter
from flatout.experiment.runner import TrialRunner
from flatout.experiment.tuning.knobs import read_knobs
from flatout.experiment.tuning.objective import Objective, constraint, metric
from flatout.experiment.tuning.on_ray import NAME, OnRay
from flatout.experiment.tuning.picks import NAMES
from flatout.experiment.tuning.search import Journal
from flatout.experiment.tuning.session import Extent, Tuning
from flatout.experiment.tuning.trials import SettingTrials, digest_search
from flatout.launch.process import INTERRUPTED, command_line, sigterm_interrupts
from flatout.launch.profile import Profile
from flatout.launch.terminal import detect_terminal, write_json, write_stderr
from flatout.records.tune import Goal, Metric, Tuned
from flatout.report import tune as report
from flatout.words import english

ROOT = Path(".flatout", "tune")
_TRIALS = "trials"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What the user chose. `out` is the search's own folder, `json` a file or "-"."""

    knobs: tuple[str, ...]
    goal: Goal = "samples/s"
    metric: str | None = None
    higher: bool | None = None
    constraints: tuple[str, ...] = ()
    preset: str | None = None
    steps: int | None = None
    warm_up: int = 10
    limit_s: float = 600.0
    budget_s: float | None = None
    trials: int | None = None
    on: str | None = None
    out: Path | None = None
    json: str | None = None
    python: str | None = None
    profile: Profile | None = None
    fresh: bool = False
    allow_writes: bool = False
    quiet: bool = False
    verbose: bool = False


def run_tune(cmd: Sequence[str], options: TuneOptions) -> int:
    """Search, print, write. 0 where a setting was chosen, 1 where none can be used, 130 where the user ended it."""
    tuned, is_interrupted = search_settings(cmd, options)
    if not options.quiet:
        write_stderr("\n" + report.render(tuned, options.verbose, detect_terminal(os.environ).unicode))
    if options.json is not None:
        write_json(options.json, report.to_json(tuned))
    if is_interrupted:
        return INTERRUPTED
    return 0 if tuned.chosen.point is not None else 1


def search_settings(cmd: Sequence[str], options: TuneOptions) -> tuple[Tuned, bool]:
    """What was found, and whether the user ended it. Raises FlatoutError before the first trial for any mistake."""
    cwd = Path.cwd()
    command_line(cmd, options.python)
    if options.json is not None and not Path(options.json).parent.is_dir():
        raise FlatoutError(f"--json {options.json!r} cannot be written: there is no such folder")
    knobs = read_knobs(options.knobs, cmd, cwd)
    wanted = _objective(options)
    base = options.profile.values if options.profile is not None else {}
    rest = (options.metric, options.warm_up, options.python, options.on, sorted(base.items()), options.allow_writes)
    name = f"{Path(run_name(cmd, None)).stem}-{digest_search(cmd, knobs, rest, cwd)}"
    folder = (options.out or ROOT / name).absolute()
    trials = SettingTrials(
        # Looked at often: the memory of a short trial peaks between two looks.
        make=TrialRunner(folder / _TRIALS, options.python, interval_s=0.2, calm=_waiter(options)),
        command=tuple(cmd),
        knobs=knobs,
        base=base,
        folder=folder,
        cwd=cwd,
        warm_up=options.warm_up,
        limit_s=options.limit_s,
        metric=options.metric,
        allow_writes=options.allow_writes,
    )
    with sigterm_interrupts(), _place(options) as place, Journal(folder, options.limit_s) as journal:
        if options.fresh:
            journal.clear()
            shutil.rmtree(folder / _TRIALS, ignore_errors=True)
        say = write_stderr if not options.quiet else lambda words: None
        extent = Extent(options.steps, options.trials, options.budget_s, options.preset, say)
        tuning = Tuning(trials, wanted, journal, place, extent)
        return tuning.to_the_end(), tuning.is_interrupted


def _waiter(options: TuneOptions) -> CalmWaiter | None:
    """Other machines are not waited for: which they are is not known here."""
    if options.on not in (None, "local"):
        return None
    waiter = CalmWaiter(lambda fact: None if options.quiet else write_stderr(f"flatout: {english(fact)}\n"))
    return waiter if options.budget_s is None else replace(waiter, budget_s=options.budget_s)


def _objective(options: TuneOptions) -> Objective:
    found: Metric | None = None if options.metric is None else metric(options.metric, options.higher)
    limits = tuple(constraint(text) for text in options.constraints)
    if found is None and (options.goal == "metric" or any(limit.figure == "metric" for limit in limits)):
        raise FlatoutError("the objective or a constraint is the metric: give it, as --metric 'PSNR: ([0-9.]+)'")
    if options.preset is not None and options.preset not in NAMES:
        raise FlatoutError(f"--preset must be one of {', '.join(NAMES)}; got {options.preset!r}")
    return Objective(options.goal, found, limits)


def _place(options: TuneOptions) -> AbstractContextManager[OnRay | None]:
    """Where the trials are made: here, or on a cluster."""
    if options.on is None or options.on == "local":
        return nullcontext(None)
    if options.on == NAME or options.on.startswith(f"{NAME}://"):
        return OnRay(options.on)
    raise FlatoutError(f"--on must be local, ray or ray://host:port; got {options.on!r}")
