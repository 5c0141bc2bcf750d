"""How well the findings of a run name what was planted. Pure functions of what a benchmark saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.corpus import Script
from flatout.problems import catalogue

# A finding on a healthy control is a false alarm from this predicted gain on.
ALARM = 1.05
LINES_OFF = 2
GAIN_OFF = 0.20
# A factor either way that most gains have to be within.
GAIN_FACTOR = 1.5
# The label of a script whose problem no code names: whoever blames its line is right.
OTHER = "other"
# Codes that tell where time goes, and no cause: at the right line they name any problem.
GENERAL = frozenset(problem.code for problem in catalogue.problems() if problem.is_general)


@dataclass(frozen=True, slots=True)
class Found:
    """One finding, as the report has it; the best first."""

    code: str
    file: str | None
    line: int | None
    gain: float | None
    # The interval of the gain.
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One script: what was said of it with its problem and without, and how fast it was (samples/s, or steps/s)."""

    script: Script
    planted: tuple[Found, ...]
    repaired: tuple[Found, ...] = ()
    planted_rate: float | None = None
    repaired_rate: float | None = None
    failure: str | None = None
    # What other tools said, by their name.
    peers: tuple[tuple[str, str], ...] = ()
    # The speed of either arm changed within its steady part: what repairing gained is then known less well.
    varied: bool = False

    @property
    def place(self) -> int | None:
        """Where the planted problem stands among the findings: 1 is first. None if it is not among them."""
        places = (n for n, found in enumerate(self.planted, 1) if self.is_named_by(found))
        return next(places, None)

    def is_named_by(self, found: Found) -> bool:
        """By its code; or by its line, where no code names it or the finding is a general one."""
        if found.code in self.script.codes:
            return True
        return self._is_guilty(found) and (OTHER in self.script.codes or found.code in GENERAL)

    def _is_guilty(self, found: Found) -> bool:
        if found.line is None or found.file is None:
            return False
        name, number = Path(found.file).name, found.line
        return any(name == file and abs(number - line) <= LINES_OFF for file, line in self.script.guilty)

    @property
    def is_coded_first(self) -> bool | None:
        """Whether the first finding has the code of the planted problem; None where no code names it."""
        if OTHER in self.script.codes:
            return None
        return bool(self.planted) and self.planted[0].code in self.script.codes

    @property
    def named(self) -> Found | None:
        """The finding that names what was planted."""
        return self.planted[self.place - 1] if self.place else None

    @property
    def line_right(self) -> bool | None:
        """Whether the line is a guilty one; None where no line was given or there is none to give."""
        named = self.named
        if named is None or named.line is None or named.file is None or not self.script.has_line:
            return None
        return self._is_guilty(named)

    @property
    def actual(self) -> float | None:
        """What repairing it gained in fact."""
        return self.repaired_rate / self.planted_rate if self.repaired_rate and self.planted_rate else None

    @property
    def gain_right(self) -> bool | None:
        """Whether the predicted gain is near the actual one; None where there is nothing to compare."""
        if self.named is None or self.actual is None or not self.script.gains:
            return None
        return self.named.gain is not None and abs(self.named.gain / self.actual - 1.0) <= GAIN_OFF

    @property
    def gain_near(self) -> bool | None:
        """Whether the predicted gain is within a factor of the actual one."""
        if self.gain_right is None or self.named is None or self.actual is None:
            return None
        gain = self.named.gain
        return gain is not None and 1 / GAIN_FACTOR <= gain / self.actual <= GAIN_FACTOR

    @property
    def gain_inside(self) -> bool | None:
        """Whether the actual gain lies within the interval that was given with the predicted one."""
        named, actual = self.named, self.actual
        if self.gain_right is None or named is None or actual is None or named.low is None or named.high is None:
            return None
        return named.low <= actual <= named.high

    @property
    def alarms(self) -> tuple[Found, ...]:
        """On a control: the findings that a user would act on."""
        worth = (found for found in self.planted if found.gain is None or found.gain >= ALARM)
        return tuple(worth) if self.script.is_control else ()

    @property
    def still_said(self) -> bool:
        """Whether the planted problem is still reported, and worth acting on, after it was repaired."""
        planted = self.script.codes[:1]
        return any(found.code in planted and (found.gain or 1.0) >= ALARM for found in self.repaired)


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    good: int
    of: int

    @property
    def share(self) -> float | None:
        return self.good / self.of if self.of else None

    def __str__(self) -> str:
        return f"{self.good} of {self.of}" + (f" ({100 * self.good / self.of:.0f}%)" if self.of else "")


@dataclass(frozen=True, slots=True)
class Score:
    """Of one family, or of all."""

    top1: Share
    top3: Share
    lines: Share
    gains: Share
    quiet: Share
    failures: int
    # The first finding has the very code; gains within GAIN_FACTOR.
    coded: Share = Share(0, 0)
    near: Share = Share(0, 0)
    # Actual gains within the interval given with the predicted one.
    inside: Share = Share(0, 0)


def findings(report: dict[str, Any]) -> tuple[Found, ...]:
    """The findings of a report in JSON."""
    return tuple(
        Found(
            code=item["code"],
            file=(item["location"] or {}).get("file"),
            line=(item["location"] or {}).get("line"),
            gain=(item["predicted_gain"] or {}).get("mid"),
            low=(item["predicted_gain"] or {}).get("low"),
            high=(item["predicted_gain"] or {}).get("high"),
        )
        for item in report["findings"]
    )


def rate(report: dict[str, Any]) -> float | None:
    """Samples a second, or steps where the samples are not known."""
    throughput = report["throughput"]
    value = throughput["samples_per_s"] or throughput["steps_per_s"]
    return float(value) if value else None


def rates(planted: dict[str, Any], repaired: dict[str, Any]) -> tuple[float | None, float | None]:
    """Of both arms in the same unit: a repair may be what makes samples countable.

    Samples count where a loader made them. Without one they are read off the autograd graph, which a repair may change.
    """
    reports = (planted, repaired)
    arms = [report["throughput"] for report in reports]
    if all(arm["samples_per_s"] for arm in arms) and all(report.get("workers") for report in reports):
        return rate(planted), rate(repaired)
    return arms[0]["steps_per_s"], arms[1]["steps_per_s"]


def has_varied(report: dict[str, Any]) -> bool:
    """Whether the speed changed within the steady part."""
    return bool((report.get("warmup") or {}).get("varied_ms"))


def score(outcomes: Sequence[Outcome]) -> Score:
    """Controls count for quietness alone; a run that failed counts as a miss."""
    problems = [outcome for outcome in outcomes if not outcome.script.is_control]
    controls = [outcome for outcome in outcomes if outcome.script.is_control]
    return Score(
        top1=_share(problems, lambda problem: problem.place == 1),
        top3=_share(problems, lambda problem: problem.place is not None and problem.place <= 3),
        lines=_share(problems, lambda problem: problem.line_right),
        gains=_share(problems, lambda problem: problem.gain_right),
        quiet=_share(controls, lambda control: not control.alarms and control.failure is None),
        failures=sum(outcome.failure is not None for outcome in outcomes),
        coded=_share(problems, lambda problem: problem.is_coded_first),
        near=_share(problems, lambda problem: problem.gain_near),
        inside=_share(problems, lambda problem: problem.gain_inside),
    )


def _share(outcomes: Sequence[Outcome], judge: Callable[[Outcome], bool | None]) -> Share:
    judged = [verdict for verdict in map(judge, outcomes) if verdict is not None]
    return Share(sum(judged), len(judged))


def by_family(outcomes: Sequence[Outcome]) -> dict[str, Score]:
    """The scores of the families that occur, in the order of their codes."""
    families = sorted({outcome.script.family for outcome in outcomes}, key=lambda name: (name == "control", name))
    return {name: score([outcome for outcome in outcomes if outcome.script.family == name]) for name in families}


# What must be reached, as shares.
BARS = {"top1": 0.95, "top3": 0.99, "lines": 0.90, "gains": 0.80, "near": 0.95, "quiet": 1.0}
_WORDS = {
    "top1": "the planted problem comes first",
    "top3": "the planted problem is among the first three",
    "near": f"the predicted gain is within a factor of {GAIN_FACTOR:g} of the actual one",
    "lines": f"the line is right (±{LINES_OFF})",
    "gains": f"the predicted gain is within ±{100 * GAIN_OFF:.0f}% of the actual one",
    "quiet": f"nothing above {100 * (ALARM - 1):.0f}% is said of a healthy script",
}


def missed(total: Score) -> list[str]:
    """The bars that were not reached, each as a sentence."""
    found = [f"{total.failures} scripts failed"] if total.failures else []
    for name, bar in BARS.items():
        reached: Share = getattr(total, name)
        if reached.share is not None and reached.share < bar:
            found.append(f"{_WORDS[name]} in {reached}, not in {100 * bar:.0f}%")
    return found
