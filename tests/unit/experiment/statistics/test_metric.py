from __future__ import annotations

import math

import numpy as np
import pytest

from flatout.experiment.statistics.intervals import student_quantile
from flatout.experiment.statistics.quality import judge_metric
from flatout.records.proof import MetricVerdict
from flatout.records.trial import Trial
from flatout.words import english


def scored(*values: float | None) -> list[Trial]:
    return [Trial("as it is", {}, "stopped", step_s=(0.1,), metric=value) for value in values]


def psnr(before: tuple[float | None, ...], after: tuple[float | None, ...]) -> MetricVerdict:
    return judge_metric(scored(*before), scored(*after), higher_is_better=True)


BARE = (30.1, 30.0, 29.9, 30.05)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (BARE, (29.95,), "inside"),
        (BARE, (31.0,), "inside"),
        (BARE, (29.0,), "worse"),
        (BARE, (math.nan,), "worse"),
        ((30.0,), (30.0,), "not verified"),
        ((30.0, 30.0), (30.0,), "inside"),
        ((30.0, 30.0), (29.99,), "not verified"),
        ((30.0, 20.0), (15.0,), "not verified"),
        ((None, None), (30.0,), "not verified"),
        (BARE, (None,), "not verified"),
        ((math.nan, 30.0), (30.0,), "not verified"),
    ],
)
def test_a_metric_is_inside_worse_or_not_verified(
    before: tuple[float | None, ...], after: tuple[float | None, ...], verdict: str
) -> None:
    assert psnr(before, after).verdict == verdict


def test_lower_may_be_better() -> None:
    error = judge_metric(scored(*BARE), scored(31.0), higher_is_better=False)

    assert error.verdict == "worse"
    assert english(error.sentence).startswith("30.0125 as it is, 31 with it: worse by 0.988")


def test_inside_says_what_could_not_have_been_seen() -> None:
    found = psnr(BARE, (29.95,))

    assert found.least_seen is not None
    assert english(found.sentence).endswith(f"a loss of less than {found.least_seen:.3g} could not have been seen")


def test_the_same_script_is_called_worse_in_at_most_one_of_twenty() -> None:
    rng = np.random.default_rng(1)

    wrong = [psnr(tuple(rng.normal(30, 0.1, 3)), tuple(rng.normal(30, 0.1, 2))).verdict == "worse" for _ in range(600)]

    assert 0.02 <= np.mean(wrong) <= 0.07


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    # From the usual tables.
    [(0.975, 1, 12.706), (0.95, 2, 2.920), (0.995, 3, 5.841), (0.975, 30, 2.042), (0.5, 4, 0.0), (0.975, 1e4, 1.960)],
)
def test_students_t_is_the_one_of_the_tables(probability: float, freedom: float, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, abs=2e-3)


def test_it_is_compared_where_all_have_printed_it_as_often() -> None:
    """The faster script gets further, and its last value is better for that alone."""
    before = [
        Trial("as it is", {}, "stopped", step_s=(0.1,), metric=21.0 + n, metrics=(20.0, 21.0 + n)) for n in (0, 1)
    ]
    after = [Trial("with it", {}, "stopped", step_s=(0.1,), metric=30.0, metrics=(19.9, 18.0, 25.0, 30.0))]

    found = judge_metric(before, after, higher_is_better=True)

    assert (found.before, found.after) == (21.5, 18.0)
