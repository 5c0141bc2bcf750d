"""The page of a fix: its record read again from JSON, and its drawings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flatout.app.report import make_page
from flatout.errors import FlatoutError
from flatout.experiment import bench
from flatout.experiment.proof import PROFILE as PROFILE_ARM
from flatout.records.fix import Fix
from flatout.records.message import verbatim
from flatout.records.proof import Envelope, MetricVerdict
from flatout.records.trial import Trial
from flatout.report.fix import to_json
from flatout.report.html.fix_page import FixMaterial, draw_arms, draw_gains, draw_losses, fix_page, is_arm
from flatout.report.html.page import draw_page
from flatout.report.json import fix_from_json, trial_from_json
from flatout.report.overview import next_after_fix
from flatout.words.codec import encode
from tests.browser.recorded import whole_run
from tests.unit.report.test_fix import FIX

EVIL = "</script><script>window.owned = 1</script>"


def _again(fix: Fix) -> Fix:
    return fix_from_json(json.loads(json.dumps(to_json(fix))))


def _trial(arm: str, remedies: dict[str, object], step_ms: float, **more: object) -> Trial:
    steps = tuple(1e-3 * (step_ms + n % 5) for n in range(40))
    falling = tuple(2.0 - 0.01 * n for n in range(60))
    return Trial(arm, remedies, "stopped", step_s=steps, samples=(32.0,) * 40, losses=falling, **more)  # type: ignore[arg-type]


BARE = [_trial("as it is", {}, 100.0), _trial("as it is", {}, 102.0)]
PROFILE = [_trial("profile", {"loader.workers": 8}, 33.0)]


def test_a_fix_is_the_same_after_json() -> None:
    quality = replace(
        FIX.quality,
        envelope=Envelope("inside", verbatim("s"), 40, 0.1, 0.01, (1, 8), 2),
        metric=MetricVerdict("inside", verbatim("m")),
    )
    fix = replace(FIX, quality=quality, failures={"x": verbatim("crashed: y")}, notices=(verbatim("n"),))

    assert _again(fix) == fix


def test_a_record_of_a_newer_flatout_is_read_and_one_of_another_schema_is_not() -> None:
    value = json.loads(json.dumps(to_json(FIX)))
    value["later"] = 1
    value["tried"][0]["later"] = 1

    assert fix_from_json(value) == FIX
    with pytest.raises(FlatoutError, match="schema 9"):
        fix_from_json({**value, "schema": 9})
    with pytest.raises(FlatoutError, match="lacks what it needs"):
        fix_from_json({"schema": 1})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("gain", "low"), "fast"),
        (("command",), 7),
        (("ceiling", "binds"), "luck"),
        (("tried", 0, "state"), None),
        (("tried", 0, "planned", "codes"), [1]),
        (("hours_before",), "2 h"),
        (("notices",), [{}]),
    ],
)
def test_a_record_that_was_written_in_by_hand_is_refused_in_one_line(place: tuple[Any, ...], value: object) -> None:
    record = json.loads(json.dumps(to_json(FIX)))
    at = record
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value

    with pytest.raises(FlatoutError, match="lacks what it needs") as error:
        fix_from_json(record)
    assert "\n" not in str(error.value)


def test_trials_of_other_versions_are_read() -> None:
    value = {**encode(BARE[0]), "later": 1}
    del value["states"]

    trial = trial_from_json(json.loads(json.dumps(value)))

    assert (trial.step_s, trial.losses, trial.ended_well) == (BARE[0].step_s, BARE[0].losses, True)


def test_gains_stand_right_and_left_of_no_effect() -> None:
    found = draw_gains(FIX)

    assert found is not None
    kept, refused = found.rows
    assert kept.low is not None and kept.mid is not None and kept.high is not None
    assert found.none_at < kept.low < kept.mid < kept.high <= 100
    assert refused.low is None and refused.figure == "–"
    assert [label for _, label in found.ticks] == ["×1", "×2"]
    assert draw_gains(replace(FIX, tried=())) is None


def test_an_interval_without_end_is_cut_at_the_edge_of_the_drawing() -> None:
    one = FIX.tried[0]
    assert one.decision is not None and one.gain is not None
    wide = replace(one, decision=replace(one.decision, gain=replace(one.gain, low=1e-9, high=1e9)))

    found = draw_gains(replace(FIX, tried=(wide,)))

    assert found is not None and (found.rows[0].low, found.rows[0].high) == (0.0, 100.0)


def test_every_arm_has_its_step_times_on_one_axis() -> None:
    found = draw_arms(FIX, [*BARE, *PROFILE, _trial("look", {}, 500.0), _trial("ceiling", {}, 5.0)])

    assert found is not None
    bare, profile = found.rows
    assert (bare.name, bare.trials, bare.steps, bare.median) == ("arm_bare", 2, 80, "103 ms")
    assert (profile.name, profile.css) == ("arm_profile", "profile")
    assert profile.median_at < bare.median_at
    assert draw_arms(FIX, []) is None


def test_only_trials_of_the_script_itself_are_arms() -> None:
    no_arms = (bench.CEILING, bench.FEED, bench.PERTURBED, bench.RESEEDED, bench.SCREENING, "look")

    assert not any(is_arm(replace(BARE[0], arm=name)) for name in no_arms)
    assert all(is_arm(replace(BARE[0], arm=name)) for name in (bench.BARE, PROFILE_ARM, "loader.workers"))


def test_batches_of_different_size_are_compared_by_the_sample() -> None:
    twice = replace(PROFILE[0], samples=(64.0,) * 40)

    found = draw_arms(FIX, [*BARE, twice])

    assert found is not None and found.low.endswith("/ sample")


def test_losses_of_the_bare_script_make_a_band() -> None:
    higher = replace(BARE[1], losses=tuple(one + 0.1 for one in BARE[1].losses if one is not None))

    found = draw_losses(FIX, [BARE[0], higher, *PROFILE])

    assert found is not None
    assert (len(found.bare), len(found.profile), found.steps) == (2, 1, 60)
    assert (found.low, found.high) == ("1.41", "2.1")
    assert len(found.band.split()) == 2 * 60
    assert draw_losses(FIX, [replace(BARE[0], losses=(None, float("nan")))]) is None


def test_the_page_of_a_fix_says_what_was_proved() -> None:
    html = draw_page(fix_page(FixMaterial(FIX, (*BARE, *PROFILE), None, None, "fix")))

    for words in (
        "×3.05",
        "340 → 1,037",
        "98% of the 1060 samples/s",
        "losses are bit-identical over 120 steps",
        "loader.workers=8",
    ):
        assert words in html
    assert next_after_fix(FIX) in html and "the script works with CUDA streams of its own" in html


def test_a_fix_that_kept_nothing_has_a_page_and_a_way_on() -> None:
    nothing = replace(FIX, profile={}, gain=None, tried=(), left_out=(), ceiling=None, after_per_s=None)

    html = draw_page(fix_page(FixMaterial(nothing, (), None, None, EVIL)))

    assert "none reliably gains more than 1% here" in html and "window.owned = 1</script>" not in html
    assert next_after_fix(nothing) == "flatout run train.py --lr 1"
    assert next_after_fix(replace(nothing, left_out=FIX.left_out)) == "flatout fix --allow numeric train.py --lr 1"


def test_the_trials_and_the_look_are_found_beside_the_record(tmp_path: Path) -> None:
    folder = tmp_path / "20260101-a"
    folder.mkdir()
    (folder / "fix.json").write_text(json.dumps(to_json(FIX)))
    look = whole_run(tmp_path).path.rename(folder / "look-1")
    (look / "trial.json").write_text(json.dumps(encode(_trial("look", {}, 100.0))))
    for n, trial in enumerate([*BARE, *PROFILE]):
        (folder / f"arm-{n}").mkdir()
        (folder / f"arm-{n}" / "trial.json").write_text(json.dumps(encode(trial)))

    stem, page = make_page(str(folder))

    html = draw_page(page)
    assert stem == "fix-20260101-a" and make_page(str(folder / "fix.json"))[0] == stem
    assert "Step times of all arms" in html and "The run over time" in html and 'id="findings"' in html
