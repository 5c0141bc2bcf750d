"""The proof at the end of a search: the whole profile against the bare script, in turns, and what that says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.app.fixing.bench import BARE, Bench
from flatout.app.fixing.search import Search
from flatout.prove.calibration import calibrated
from flatout.prove.decision import BAR
from flatout.prove.envelope import envelope
from flatout.prove.hours import hours
from flatout.prove.identity import identity
from flatout.prove.metric import metric
from flatout.prove.rates import arm_per_s, common_unit, measured
from flatout.prove.ratio import gain
from flatout.records.fix import Fix, Quality
from flatout.records.report import RunReport
from flatout.remedies.catalogue import known

PROFILE = "profile"
# Two of each, so that a machine that slows down meanwhile slows both.
_TURNS = (False, True, True, False)
_MORE_TURNS = (True, False)
# An interval no wider than this, for its middle, needs no more trials.
_SHARP = 0.04
_MOST_TURNS = 8


def confirm(bench: Bench, profile: Mapping[str, Any]) -> None:
    """Fresh processes of both arms, until the interval is sharp or the time is spent; two of each in any case."""
    turns = 0
    for is_remedied in _TURNS:
        _turn(bench, profile, is_remedied)
        turns += 1
    while turns < _MOST_TURNS and _is_wide(bench, profile) and bench.affords(profile, len(_MORE_TURNS), reserve=0.0):
        for is_remedied in _MORE_TURNS:
            _turn(bench, profile, is_remedied)
            turns += 1


def holds(bench: Bench, profile: Mapping[str, Any]) -> bool:
    """Whether the whole profile surely gains, by all trials of both arms."""
    found = gain(bench.of({}), bench.of(profile), calibrated(bench.arms(), "total"), "total")
    return found is not None and found.low > BAR


def _turn(bench: Bench, profile: Mapping[str, Any], is_remedied: bool) -> None:
    bench.trial(profile if is_remedied else {}, PROFILE if is_remedied else BARE, again=True)


def _is_wide(bench: Bench, profile: Mapping[str, Any]) -> bool:
    found = gain(bench.of({}), bench.of(profile), calibrated(bench.arms()))
    return found is not None and (found.high - found.low) / found.mid > _SHARP


def concluded(bench: Bench, search: Search, report: RunReport) -> Fix:
    """The record of the search, from all trials that were made."""
    found = search.found
    bare, after = measured(bench.of({})), measured(bench.of(found.profile))
    spread = calibrated(bench.arms(), "total")
    unit = common_unit([*bare, *after])
    failures = {trial.arm: f"{trial.ending}: {trial.why}" for trial in bench.all if not trial.ended_well}
    return Fix(
        command=bench.settings.command,
        device=report.run.device,
        verdict=report.verdict,
        tried=tuple(found.tried),
        left_out=tuple(one for one in found.left_out.values() if one.id not in found.profile),
        profile=found.profile,
        unit=unit,
        before_per_s=arm_per_s(bare, unit, "total") if bare else None,
        after_per_s=arm_per_s(after, unit, "total") if after else None,
        gain=gain(bare, after, spread, "total") if found.profile else None,
        hours_before=hours(bare, bare, spread),
        hours_after=hours(bare, after, spread) if found.profile else None,
        ceiling=found.ceiling,
        quality=_quality(bench, search) if found.profile else Quality(),
        ended=found.ended,
        trials=len(bench.all),
        took_s=bench.took_s,
        written=tuple(dict.fromkeys(file for trial in bench.all for file in trial.written)),
        sources=tuple(dict.fromkeys(one.location.file for one in search.findings if one.location is not None)),
        failures=failures,
    )


def _quality(bench: Bench, search: Search) -> Quality:
    profile, settings = search.found.profile, bench.settings
    remedies = known()
    lossless = {name: value for name, value in profile.items() if remedies[name].safety == "lossless"}
    bare = bench.of({})
    same = identity(bare, bench.trial(lossless, "lossless part")) if lossless else None
    within = envelope(search.yardsticks(), bench.of(profile)) if lossless != profile else None
    of_user = metric(bare, bench.of(profile), higher_is_better=settings.higher) if settings.metric else None
    return Quality(same, within, of_user)
