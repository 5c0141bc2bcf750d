"""Points of the front by what may be lost; "not verified" where nothing was measured."""

from __future__ import annotations

import pytest

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.picks import NAMES, pick_best, pick_preset
from flatout.records.message import verbatim
from flatout.records.tune import Metric, Point
from flatout.words import english
from tests.unit.experiment.tuning.simulated import knob

KNOBS = (
    knob("workers", 0, 8),
    knob("bf16", True, False, safety="numeric"),
    knob("window", 8, 7, 6, safety="training"),
)
PSNR = Objective("samples/s", Metric("PSNR: (.*)", True))
LOSS = Objective("samples/s", Metric("loss: (.*)", False))
BLIND = Objective("samples/s", None)


def _point(speed: float, metric: float | None = None, memory: float | None = None, **setting: object) -> Point:
    return Point(setting, 60, samples_per_s=speed, metric=metric, memory_bytes=memory)


BASE = _point(10, 31.0, 40e9)
MEASURED = [
    BASE,
    _point(12, 30.9, 30e9, window=7),
    _point(14, 30.7, 25e9, window=6),
    _point(18, 30.0, 12e9, window=6, bf16=True),
    _point(19, 25.0, 5e9, window=6, workers=8),
]


@pytest.mark.parametrize(
    ("name", "speed", "says"),
    [
        ("conservative", 12, "quality lower by 0.10 dB after 60 steps"),
        ("balanced", 14, "quality lower by 0.30 dB"),
        ("aggressive", 18, "quality lower by 1.00 dB"),
        ("low-memory", 14, "0.30 dB"),
    ],
)
def test_budgets_in_decibel(name: str, speed: float, says: str) -> None:
    pick = pick_preset(name, MEASURED, KNOBS, PSNR, BASE)

    assert pick.point is not None and pick.point.samples_per_s == speed
    assert says in english(pick.why)


def test_budgets_as_a_share_and_a_metric_that_is_better_low() -> None:
    base = _point(10, 2.00)
    points = [
        base,
        _point(12, 2.009, window=7),
        _point(14, 2.029, window=6),
        _point(18, 2.1, bf16=True),
        _point(9, 1.5),
    ]

    picked = [pick_preset(name, points, KNOBS, LOSS, base).point for name in NAMES[:3]]

    assert [point.samples_per_s for point in picked if point is not None] == [12, 14, 18]


def test_without_a_metric_only_what_cannot_change_the_training_is_turned() -> None:
    points = [
        _point(10),
        _point(12, workers=8),
        _point(16, workers=8, bf16=True),
        _point(30, workers=8, bf16=True, window=6),
        _point(13, workers=8, bf16=False),
    ]

    picks = {name: pick_preset(name, points, KNOBS, BLIND, points[0]) for name in NAMES}

    speeds = {name: pick.point and pick.point.samples_per_s for name, pick in picks.items()}
    assert speeds == {"conservative": 13, "balanced": 16, "aggressive": 16, "low-memory": None}
    assert english(picks["conservative"].why) == "lossless knobs only"
    assert english(picks["balanced"].why) == "quality not verified: no metric was given"
    assert english(picks["low-memory"].why) == "memory was not measured"


def test_a_metric_that_was_never_printed_verifies_nothing() -> None:
    points = [_point(10), _point(12, window=6), _point(11, bf16=True)]

    assert pick_preset("aggressive", points, KNOBS, PSNR, points[0]).point == points[2]
    assert (
        english(pick_best(points, KNOBS, PSNR, points[0]).why)
        == "the fastest; quality not verified: no metric was printed"
    )


def test_of_those_as_fast_the_one_that_takes_least() -> None:
    points = [
        _point(10),
        _point(19.8, memory=3e9, workers=4),
        _point(20, memory=3.1e9, workers=8),
        _point(15, workers=1),
    ]

    assert pick_best(points, (knob("workers", 1, 4, 8),), BLIND, points[0]).point == points[1]


def test_what_is_not_surely_faster_is_not_chosen() -> None:
    base = Point({}, 60, samples_per_s=100.0, error=0.03)
    near, far = (Point({"workers": 8}, 60, samples_per_s=speed, error=0.03) for speed in (107.0, 110.0))

    assert pick_best([base, near], KNOBS, BLIND, base).point == base
    assert pick_best([base, far], KNOBS, BLIND, base).point == far


def test_where_nothing_can_be_used_nothing_is_chosen() -> None:
    failed = Point({"window": 6}, 60, why=verbatim("out of memory"))

    assert pick_best([failed], KNOBS, BLIND, None).point is None
    assert all(pick_preset(name, [failed], KNOBS, BLIND, None).point is None for name in NAMES)


def test_other_goals() -> None:
    by_metric = Objective("metric", Metric("PSNR: (.*)", True))
    by_memory = Objective("memory", None)

    assert pick_best(MEASURED, KNOBS, by_metric, BASE).point == BASE
    assert pick_best(MEASURED, KNOBS, by_memory, BASE).point == MEASURED[-1]
