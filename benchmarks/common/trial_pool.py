"""Real trials of one script as it is, kept in a file: what its processes differ by when nothing is changed."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flatout.diagnose.ranks import training_ranks
from flatout.experiment.bench import TRIAL_SHARE
from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.sizing import sizes
from flatout.experiment.turns import Arms, count_turn_steps
from flatout.records.trial import Trial
from flatout.store.run import StoredRun
from flatout.words import english
from flatout.words.codec import decode, encode

BUDGET_S = 600.0
# Three remedies, all of them together, and the script as it is, twice.
ARMS = 6
_LOOK_STEPS = 150
_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Pool:
    """`trials` in the order they were made. `others` are one each: the first look, perturbed weights, the two ceilings.

    `turns` are of processes in which arms took turns and none had a remedy: seconds a step, by arm and turn.
    """

    script: str
    # Of the machine, when the first and the last trial were made.
    loads: tuple[float, ...] = ()
    took_s: float = 0.0
    trials: tuple[Trial, ...] = ()
    others: dict[str, Trial] = field(default_factory=dict)
    turns: tuple[tuple[tuple[float, ...], ...], ...] = ()


def grown(file: Path, command: tuple[str, ...], count: int, of_turns: int, load: Callable[[], float]) -> Pool:
    """The pool in `file` with at least so many trials: those that are missing are made, and the file grows by each."""
    pool = read(file) if file.exists() else Pool(Path(command[0]).name)
    with tempfile.TemporaryDirectory(prefix="flatout-pool-") as scratch:
        maker = TrialRunner(Path(scratch))
        while len(pool.trials) < count:
            began_s = time.monotonic()
            if not pool.others:
                pool = replace(pool, others=_others(maker, command))
            request = Request(command, "as it is", steps=_steps(pool), warm_up=_WARM_UP, repeat=len(pool.trials))
            trial = _sound(maker(request))
            took_s = pool.took_s + time.monotonic() - began_s
            pool = replace(pool, loads=(*pool.loads, load()), took_s=took_s, trials=(*pool.trials, trial))
            write(file, pool)
            mean_ms = 1e3 * sum(trial.step_s) / len(trial.step_s)
            print(f"trial {len(pool.trials)} of {count}: {mean_ms:.2f} ms a step", file=sys.stderr, flush=True)
        while len(pool.turns) < of_turns:
            pool = replace(pool, turns=(*pool.turns, _turns(maker, command, len(pool.turns))))
            write(file, pool)
            print(f"process of turns {len(pool.turns)} of {of_turns}", file=sys.stderr, flush=True)
    return pool


def _turns(maker: TrialRunner, command: tuple[str, ...], repeat: int) -> tuple[tuple[float, ...], ...]:
    arms: Arms = tuple((f"arm {number}", {}) for number in range(ARMS))
    trial = _sound(maker(Request(command, "turns", steps=count_turn_steps(arms), arms=arms, repeat=repeat)))
    (found,) = training_ranks(StoredRun(Path(trial.run)))[0].recording.values("screening")
    return tuple(tuple(found["seconds"][name]) for name, _ in arms)


def _others(maker: TrialRunner, command: tuple[str, ...]) -> dict[str, Trial]:
    look = _sound(maker(Request(command, "look", steps=_LOOK_STEPS, with_lines=True)))
    steps = sizes(look, maker.report(look), TRIAL_SHARE * BUDGET_S).about({})

    def other(name: str, **asked: Any) -> Trial:
        return _sound(maker(Request(command, name, steps=steps, warm_up=_WARM_UP, **asked)))

    perturbed, compute, feed = (
        other("perturbed", perturbed=2.0**-20),
        other("compute", replays=8),
        other("feed", feeds=True),
    )
    return {"look": look, "perturbed": perturbed, "compute": compute, "feed": feed}


def _steps(pool: Pool) -> int:
    """As long as a search would make them."""
    made = [*pool.trials, pool.others["perturbed"]]
    return len(made[0].step_s) + _WARM_UP


def _sound(trial: Trial) -> Trial:
    if not trial.ended_well:
        raise SystemExit(f"a trial of the bare script failed ({trial.ending}: {english(trial.why)})")
    return trial


def write(file: Path, pool: Pool) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(encode(pool, only_finite=False)) + "\n", encoding="utf-8")
    partial.replace(file)


def read(file: Path) -> Pool:
    value = json.loads(file.read_text(encoding="utf-8"))
    return Pool(
        value["script"],
        tuple(value["loads"]),
        value["took_s"],
        tuple(decode(Trial, one, strict=False) for one in value["trials"]),
        {name: decode(Trial, one, strict=False) for name, one in value["others"].items()},
        tuple(tuple(tuple(arm) for arm in process) for process in value.get("turns", ())),
    )
