"""Searches on drawn trials: nothing is in them but what was put there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common.trial_pool import Pool, read, write
from benchmarks.healthy_search import PLANS, Drawing, Dry, Job, made, page, wilson
from flatout.experiment.request import Request
from flatout.experiment.turns import Arms
from flatout.records.trial import Trial

_STEPS = 60


def trial(seed: int, step_s: float = 0.03, between: float = 0.01) -> Trial:
    draw = np.random.default_rng(seed)
    seconds = step_s * np.exp(draw.normal(0.0, between) + draw.normal(0.0, 0.05, _STEPS))
    losses = tuple(2.0 / (1 + step) for step in range(_STEPS))
    return Trial(
        "as it is",
        {},
        "stopped",
        step_s=tuple(seconds.tolist()),
        samples=(8.0,) * _STEPS,
        losses=losses,
        weights="w",
        wall_s=5.0,
        steps=_STEPS,
    )


@pytest.fixture
def pool() -> Pool:
    others = {name: trial(1000 + number) for number, name in enumerate(("look", "perturbed", "compute", "feed"))}
    return Pool("train.py", (0.1,), 300.0, tuple(trial(seed) for seed in range(60)), others)


def test_no_trial_is_drawn_twice_in_a_search(pool: Pool) -> None:
    drawing = Drawing(pool, pool.trials[:3], {})

    drawn = [drawing(Request(("train.py",), f"arm {number}")).step_s for number in range(3)]

    assert drawn == [one.step_s for one in pool.trials[:3]]
    with pytest.raises(Dry):
        drawing(Request(("train.py",), "one more"))


def test_a_plan_is_tried_as_a_whole_and_keeps_nothing_where_nothing_is_in_it(pool: Pool) -> None:
    job = Job("many", "at random", tuple(range(4)))

    found = made(job, pool)

    # Workers are tried with a number of their own as well.
    assert all(one.judged > len(PLANS["many"]) for one in found)
    assert sum(bool(one.kept) for one in found) <= 1
    assert not any(one.is_dry for one in found)


def test_arms_in_turns_are_given_turns_of_one_process_anew_in_each_round(pool: Pool) -> None:
    process = tuple(tuple(100.0 + 10 * turn + arm for turn in range(6)) for arm in range(4))
    drawing = Drawing(replace(pool, turns=(process,)), (), {})
    arms: Arms = tuple((name, {}) for name in ("one", "other", "third", "last"))

    found = drawing.in_turns(drawing(Request(("train.py",), "turns", arms=arms)))

    assert list(found) == [name for name, _ in arms]
    rounds = list(zip(*(one.step_s for one in found.values()), strict=True))
    assert [sorted(turns) for turns in rounds] == [sorted(turns) for turns in zip(*process, strict=True)]
    assert len({tuple(seconds % 10 for seconds in turns) for turns in rounds}) > 1


def test_a_search_with_turns_keeps_nothing_either(pool: Pool) -> None:
    draw = np.random.default_rng(3)
    turns = tuple(tuple(tuple((0.03 * np.exp(draw.normal(0, 0.01, 6))).tolist()) for _ in range(6)) for _ in range(5))

    found = made(Job("many", "at random", tuple(range(4))), replace(pool, turns=turns))

    assert not any(one.failure for one in found)
    assert sum(bool(one.kept) for one in found) <= 1


def test_a_planted_gain_is_found_so_it_could_have_kept_something(pool: Pool) -> None:
    job = Job("two", "at random", tuple(range(3)), gain=1.2)

    found = made(job, pool)

    assert [one.kept for one in found] == [("gc.defer",)] * 3


def test_as_they_were_made_a_slow_spell_stays_in_one_piece(pool: Pool) -> None:
    trials = tuple(trial(seed, 0.03 if seed < 30 else 0.06) for seed in range(60))
    slowed = Pool("train.py", (0.1,), 300.0, trials, pool.others)

    found = made(Job("two", "as made", (0,)), slowed)

    assert found[0].trials < 30 and not found[0].kept


def test_the_page_says_what_it_is_about(pool: Pool) -> None:
    nothing, planted = Job("two", "at random", (0, 1)), Job("two", "at random", (0,), gain=1.2)

    text = page(pool, {job: made(job, pool) for job in (nothing, planted)})

    assert "60 trials of train.py" in text
    assert "| two | at random | 2 | 0 (0.0%) |" in text
    assert "| 20% | 1 | 100% |" in text


def test_a_pool_is_read_as_it_was_written(pool: Pool, tmp_path: Path) -> None:
    write(tmp_path / "pool.json", pool)

    assert read(tmp_path / "pool.json") == pool


@pytest.mark.parametrize(("count", "total", "low", "high"), [(0, 100, 0.0, 0.037), (5, 100, 0.0215, 0.1118)])
def test_the_interval_of_a_share(count: int, total: int, low: float, high: float) -> None:
    assert wilson(count, total) == pytest.approx((low, high), abs=5e-4)
