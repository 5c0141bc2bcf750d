"""`flatout tune` against trying everything: how good is what it finds, and what part of the trial time does it take?

python -m benchmarks.tune [--workers 32] [--sizes 8..64] [--steps 60] [--only workers] [--gate]

The grid gives every value a full trial. What both found is measured again in turns, since the best of many noisy
trials looks better than it is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from flatout.app.tune import TuneOptions, search_settings
from flatout.experiment.runner import TrialRunner
from flatout.experiment.tuning.knobs import read_knobs
from flatout.experiment.tuning.search import read_point
from flatout.experiment.tuning.strategies import all_settings
from flatout.experiment.tuning.trials import SettingTrials
from flatout.records.tune import Ask, Setting

SCRIPT = child.CHILDREN / "tuned.py"
WARM_UP = 5
LEAST_QUALITY, MOST_TIME = 0.95, 0.20


@dataclass(frozen=True, slots=True)
class Outcome:
    """`quality` is the speed of what the search found over the speed of what the grid did."""

    knob: str
    values: int
    found: str
    best: str
    quality: float
    search_trials: int
    search_s: float
    grid_s: float

    @property
    def time_share(self) -> float:
        return self.search_s / self.grid_s


def compare(word: str, command: tuple[str, ...], steps: int, repeats: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as name:
        folder = Path(name)
        os.chdir(folder)
        tuned, _ = search_settings(command, TuneOptions((word,), steps=steps, warm_up=WARM_UP, out=folder / "search"))
        assert tuned.chosen.point is not None, "the search found nothing"
        knobs = read_knobs([word], command, folder)
        trials = SettingTrials(
            TrialRunner(folder / "grid"), command, knobs, {}, folder / "grid", folder, WARM_UP, 600.0, None
        )
        grid = {}
        for setting in all_settings(knobs):
            seen = read_point(Ask(setting, steps), trials(Ask(setting, steps)))
            print(f"grid {dict(setting)}: {seen.samples_per_s or 0:.1f} samples/s", file=sys.stderr, flush=True)
            grid[repr(dict(setting))] = (setting, seen)
        best = max(
            (setting for setting, _ in grid.values()), key=lambda one: grid[repr(dict(one))][1].samples_per_s or 0
        )
        found = tuned.chosen.point.setting
        # All trials of the search but those of the script as it is, which a grid would have to make as well.
        made = [one for one in (folder / "search" / "trials").iterdir() if not one.name.startswith("as-it-is")]
        search_s = sum(_wall_s(one) for one in made)
        return Outcome(
            knob=word,
            values=len(grid),
            found=str(dict(found)),
            best=str(dict(best)),
            quality=_in_turns(trials, found, best, steps, repeats),
            search_trials=len(made),
            search_s=search_s,
            grid_s=sum(seen.wall_s for _, seen in grid.values()),
        )


def _in_turns(trials: SettingTrials, found: Setting, best: Setting, steps: int, repeats: int) -> float:
    """The median ratio of their speeds, each pair measured one after the other."""
    if dict(found) == dict(best):
        return 1.0
    ratios = []
    for repeat in range(1, repeats + 1):
        asks = [Ask(found, steps, repeat), Ask(best, steps, repeat)]
        first, second = (read_point(ask, trials(ask)).samples_per_s or 0.0 for ask in asks)
        ratios.append(first / second)
    return statistics.median(ratios)


def _wall_s(folder: Path) -> float:
    return float(str(child.read_json(folder / "trial.json")["wall_s"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=32, help="the most workers of the grid")
    parser.add_argument("--sizes", default="8..64", help="batch sizes of the grid")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("workers", "batch_size"))
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()
    script = str(SCRIPT.absolute())
    # A sample takes 4 ms and the device 1 ms for it: four workers and a little feed it.
    cases = {
        "workers": (f"workers=0..{o.workers}", (script,)),
        "batch_size": (f"batch_size={o.sizes}", (script, "--sample-ms", "0", "--start-ms", "20")),
    }
    outcomes = [compare(*case, o.steps, o.repeats) for name, case in cases.items() if o.only in (None, name)]
    missed = [outcome.knob for outcome in outcomes if outcome.quality < LEAST_QUALITY or outcome.time_share > MOST_TIME]
    rows = [
        [
            outcome.knob,
            outcome.found,
            outcome.best,
            f"{outcome.quality:.1%}",
            f"{outcome.search_trials} of {outcome.values}",
            f"{outcome.time_share:.0%}",
        ]
        for outcome in outcomes
    ]
    page = results.table(["knob", "found", "the grid's best", "speed of it", "trials", "trial time"], rows)
    page += f"\nBars: at least {LEAST_QUALITY:.0%} of the grid's speed in at most {MOST_TIME:.0%} of its trial time."
    page += "".join(f"\nMissed: {name}." for name in missed)
    print(page)
    data = {"versions": results.versions("torch", "flatout"), "steps": o.steps, "outcomes": outcomes, "missed": missed}
    print(f"written: {results.write('tune', data, page, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
