"""Too many settings for all of them: both ways keep the same promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.search import longest
from flatout.experiment.tuning.strategies import (
    Strategy,
    all_settings,
    count,
    explore,
    has_optuna,
    search_by_model,
    setting_key,
)
from flatout.records.tune import Metric, Setting
from tests.unit.experiment.tuning.simulated import LENGTHS, SPEED, Formula, knob, search

KNOBS = (
    knob("workers", 0, 2, 4, 8, 12, 16),
    knob("batch", 4, 8, 16, 32, 64),
    knob("precision", "fp32", "bf16", "fp16"),
    knob("window", 8, 7, 6),
)
Way = Callable[..., Strategy]
WAYS = [
    pytest.param(explore, id="exploring"),
    pytest.param(search_by_model, id="optuna", marks=pytest.mark.skipif(not has_optuna(), reason="needs optuna")),
]


def _speed(setting: Setting) -> float:
    fed = min(1.0, 0.3 + 0.09 * setting["workers"])
    filled = setting["batch"] / (setting["batch"] + 6)
    return (
        100.0 * fed * filled * (2.0 if setting["precision"] == "bf16" else 1.0) * (1.0 + 0.1 * (8 - setting["window"]))
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("width", [1, 4])
def test_no_setting_is_tried_twice_and_no_more_than_asked(tmp_path: Path, way: Way, width: int) -> None:
    formula = Formula(_speed, noise=0.05)

    search(tmp_path, formula, way(KNOBS, SPEED, LENGTHS, 30, width))

    short = [setting_key(ask.setting) for ask in formula.asked if ask.steps == LENGTHS.short]
    long = [setting_key(ask.setting) for ask in formula.asked if ask.steps == LENGTHS.long]
    assert len(short) == len(set(short)) == 30
    assert len(long) == len(set(long)) == 10 and set(long) <= set(short)


@pytest.mark.parametrize("way", WAYS)
def test_it_comes_close_to_the_best_in_a_ninth_of_the_settings(tmp_path: Path, way: Way) -> None:
    formula = Formula(_speed, noise=0.02)

    points = search(tmp_path, formula, way(KNOBS, SPEED, LENGTHS, 30, 1))

    found = max(longest(points), key=SPEED.score)
    exact = max(_speed(setting) for setting in all_settings(KNOBS))
    assert count(KNOBS) == 270
    assert _speed(found.setting) >= 0.9 * exact


@pytest.mark.parametrize("way", WAYS)
def test_the_same_answers_lead_to_the_same_questions(tmp_path: Path, way: Way) -> None:
    first, second = Formula(_speed), Formula(_speed)

    search(tmp_path / "first", first, way(KNOBS, SPEED, LENGTHS, 16, 1))
    search(tmp_path / "second", second, way(KNOBS, SPEED, LENGTHS, 16, 1))

    assert first.asked == second.asked


@pytest.mark.parametrize("way", WAYS)
def test_what_fails_is_kept_away_from(tmp_path: Path, way: Way) -> None:
    formula = Formula(
        _speed, memory=lambda setting: setting["batch"], room=20, metric=lambda setting: setting["window"]
    )
    objective = Objective("samples/s", Metric("PSNR (.*)", True))

    points = search(tmp_path, formula, way(KNOBS, objective, LENGTHS, 30, 1))

    failed = [point for point in points if point.why and point.steps == LENGTHS.short]
    assert len(failed) < 0.4 * 30, "two fifths of all settings fail"
    assert any(not point.why and point.setting["batch"] == 16 for point in points)


@pytest.mark.parametrize("way", WAYS)
def test_a_small_space_is_gone_through_and_then_it_ends(tmp_path: Path, way: Way) -> None:
    formula = Formula(lambda setting: float(setting["n"] + setting["m"]))

    search(tmp_path, formula, way((knob("n", 1, 2), knob("m", 1, 2)), SPEED, LENGTHS, 50, 3))

    assert len({setting_key(ask.setting) for ask in formula.asked}) >= 3
