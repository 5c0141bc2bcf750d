"""What the user wants and where the limits are; the front of what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from flatout.errors import FlatoutError
from flatout.experiment.tuning.objective import Objective, constraint, metric, pareto_front
from flatout.records.message import NOTHING
from flatout.records.tune import Point
from flatout.words import english


@pytest.mark.parametrize(
    ("text", "figure", "is_upper", "limit"),
    [
        ("memory<70GB", "memory", True, 70e9),
        ("memory <= 512 MiB", "memory", True, 512 * 2**20),
        ("metric>31.5", "metric", False, 31.5),
        ("samples/s>=100", "samples/s", False, 100),
    ],
)
def test_a_limit_as_people_write_it(text: str, figure: str, is_upper: bool, limit: float) -> None:
    found = constraint(text)

    assert (found.figure, found.is_upper, found.limit) == (figure, is_upper, limit)


@pytest.mark.parametrize("text", ["memory", "memory=70GB", "speed>3", "metric>3GB", "memory<1.2.3GB", "memory<70XB"])
def test_a_limit_that_cannot_be_understood_is_quoted(text: str) -> None:
    with pytest.raises(FlatoutError, match="write it as") as raised:
        constraint(text)

    assert repr(text) in str(raised.value)


def test_a_limit_on_what_was_not_measured_is_not_kept() -> None:
    objective = Objective("samples/s", None, (constraint("memory<1GB"),))

    unknown, large = (Point({}, 1, samples_per_s=1.0, memory_bytes=size) for size in (None, 2e9))
    assert english(objective.obstacle(unknown)) == "memory<1GB: memory was not measured"
    assert english(objective.obstacle(large)) == "breaks memory<1GB"
    assert objective.obstacle(Point({}, 1, samples_per_s=1.0, memory_bytes=1e8)) == NOTHING


@pytest.mark.parametrize("pattern", ["PSNR: [0-9.]+", "(a)(b)", "("])
def test_a_metric_needs_one_group(pattern: str) -> None:
    with pytest.raises(FlatoutError, match="--metric"):
        metric(pattern, None)


@pytest.mark.parametrize(
    ("pattern", "higher"),
    [
        ("PSNR: (.*)", True),
        ("accuracy (.*)", True),
        ("val_loss=(.*)", False),
        ("error: (.*)", False),
        ("FID (.*)", False),
    ],
)
def test_a_loss_is_better_low_where_the_user_does_not_say(pattern: str, higher: bool) -> None:
    assert metric(pattern, None).higher_is_better is higher
    assert metric(pattern, not higher).higher_is_better is not higher


_POINTS = some.lists(
    some.builds(
        Point,
        setting=some.fixed_dictionaries({"n": some.integers()}),
        steps=some.just(10),
        samples_per_s=some.floats(0.1, 1e4),
        memory_bytes=some.floats(1, 1e10),
        metric=some.floats(-50, 50),
        why=some.sampled_from(["", "", "out of memory"]),
    ),
    max_size=12,
)


@given(_POINTS)
def test_the_front_holds_what_nothing_beats_and_the_fastest_at_least_nearly(points: list[Point]) -> None:
    objective = Objective("samples/s", metric("PSNR (.*)", True))

    found = pareto_front(points, objective)

    usable = [point for point in points if not point.why]
    assert bool(found) == bool(usable)
    assert all(point in usable for point in found)
    for one in found:
        for other in usable:
            is_better_by_far = (
                (other.samples_per_s or 0) > 1.03 * (one.samples_per_s or 0)
                and (other.memory_bytes or 0) < 0.97 * (one.memory_bytes or 0)
                and (other.metric or 0) >= (one.metric or 0)
            )
            assert not is_better_by_far
    if usable:
        fastest = max(point.samples_per_s or 0 for point in usable)
        assert max(point.samples_per_s or 0 for point in found) >= fastest / 1.011


def test_a_figure_that_some_lack_does_not_count() -> None:
    objective = Objective("samples/s", None)
    fast = Point({"a": 1}, 10, samples_per_s=20.0, memory_bytes=None)
    slow = Point({"a": 2}, 10, samples_per_s=10.0, memory_bytes=5.0)

    assert pareto_front([slow, fast], objective) == [fast]
