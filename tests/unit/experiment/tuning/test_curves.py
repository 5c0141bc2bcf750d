"""Workers and batch sizes: as good as trying them all, in a fraction of the steps."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flatout.experiment.tuning.picks import pick_best
from flatout.experiment.tuning.search import MemoryModel, longest
from flatout.experiment.tuning.strategies import Curve, Lengths, find_knee, find_top
from flatout.records.message import verbatim
from flatout.records.trial import Trial, describe_ending
from flatout.records.tune import Ask, Knob, Point, Setting
from flatout.words import english
from tests.unit.experiment.tuning.simulated import LENGTHS, SPEED, Formula, knob, search

GIB = 2.0**30


def _workers(most: int) -> Knob:
    return knob("workers", *range(most + 1), meaning="num_workers")


def _chosen(points: list[Point], turned: Knob) -> Setting:
    final = [point for point in longest(points) if point.steps == LENGTHS.long and point.is_usable]
    chosen = pick_best(final, [turned], SPEED, None).point
    assert chosen is not None
    return chosen.setting


def _feeding(drawing: random.Random, most: int) -> Callable[[Setting], float]:
    """So many samples a second from each worker, until the processors or the GPU are at their limit."""
    each, top, processors = drawing.uniform(10, 300), drawing.uniform(100, 2000), drawing.randint(4, most)
    takes = drawing.uniform(0.01, 0.05)

    def speed(setting: Setting) -> float:
        workers = setting["workers"]
        if not workers:
            return 1 / (1 / each + 1 / top)
        crowding = 1 / (1 + takes * max(0, workers - processors))
        return min(each * min(workers, processors) * crowding, top * (1 - 0.004 * workers))

    return speed


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_workers_within_five_per_cent_of_the_grid_at_a_fifth_of_its_steps(tmp_path: Path, noise: float) -> None:
    drawing, most = random.Random(7), 48
    good, shares = 0, []
    for number in range(40):
        speed = _feeding(drawing, most)
        formula = Formula(speed, noise=noise, seed=number)
        points = search(tmp_path / f"{number}", formula, find_top(_workers(most), SPEED, LENGTHS))
        exact = max(speed({"workers": n}) for n in range(most + 1))
        good += speed(_chosen(points, _workers(most))) >= 0.95 * exact
        shares.append(formula.steps / (LENGTHS.long * (most + 1)))

    assert good >= 39
    assert max(shares) <= 0.2


def test_no_workers_where_they_only_cost(tmp_path: Path) -> None:
    formula = Formula(lambda setting: 100.0 / (1 + setting["workers"]))

    points = search(tmp_path, formula, find_top(_workers(16), SPEED, LENGTHS))

    assert _chosen(points, _workers(16)) == {"workers": 0}


def test_few_workers_where_more_do_not_help(tmp_path: Path) -> None:
    formula = Formula(lambda setting: min(100.0, 30.0 * (setting["workers"] or 0.5)))

    points = search(tmp_path, formula, find_top(_workers(16), SPEED, LENGTHS))

    assert _chosen(points, _workers(16))["workers"] <= 4


def test_a_curve_that_is_known_needs_no_trial() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]

    assert Curve(dict.fromkeys(values, 1.0)).next_of(values) is None
    assert Curve({1.0: 1.0, 4.0: 2.0, 5.0: 2.0, 8.0: 2.0}).next_of(values) is None, "level at its top"
    assert Curve({1.0: 1.0, 4.0: 4.0, 8.0: 3.0}).next_of(values) in (5.0, 6.0), "it may have gone on rising"


@pytest.mark.timing
def test_a_real_curve(tmp_path: Path) -> None:
    """Threads that wait 20 ms for an item, and one reader that takes 5 ms for each: four will do."""

    def measure(ask: Ask) -> Trial:
        arrived = []
        with ThreadPoolExecutor(ask.setting["workers"]) as threads:
            for _ in threads.map(lambda _: time.sleep(0.02), range(ask.steps + 9)):
                time.sleep(0.005)
                arrived.append(time.perf_counter())
        times = [after - before for before, after in itertools.pairwise(arrived[8:])]
        return Trial("x", {}, "stopped", step_s=tuple(times), samples=(1.0,) * len(times))

    turned = knob("workers", *range(1, 25), meaning="num_workers")
    points = search(tmp_path, measure, find_top(turned, SPEED, Lengths(20, 60)))

    chosen = _chosen(points, turned)["workers"]
    assert 3 <= chosen <= 12 and len(points) <= 13


def _batches(*sizes: int) -> Knob:
    return knob("batch", *sizes, meaning="batch_size", safety="training")


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_batch_within_five_per_cent_of_the_grid_at_a_fifth_of_its_steps(tmp_path: Path, noise: float) -> None:
    drawing, turned = random.Random(3), _batches(*range(8, 129))
    good, shares, too_large = 0, [], 0
    for number in range(40):
        start, each = drawing.uniform(0.5, 60), drawing.uniform(0.1, 5)
        model, sample = drawing.uniform(1, 10) * GIB, drawing.uniform(0.02, 2) * GIB

        def speed(setting: Setting, start: float = start, each: float = each) -> float:
            return float(setting["batch"] / (start + each * setting["batch"]))

        def memory(setting: Setting, model: float = model, sample: float = sample) -> float:
            return float(model + sample * setting["batch"])

        formula = Formula(speed, memory, 80 * GIB, noise=noise, seed=number)
        fits = MemoryModel([turned], 0.92 * 80 * GIB)
        points = search(tmp_path / f"{number}", formula, find_knee(turned, SPEED, LENGTHS), fits)
        exact = max(speed({"batch": n}) for n in turned.values if memory({"batch": n}) <= 0.92 * 80 * GIB)
        good += speed(_chosen(points, turned)) >= 0.95 * exact
        shares.append(formula.steps / (LENGTHS.long * len(turned.values)))
        too_large += sum(memory(ask.setting) > 80 * GIB for ask in formula.asked)

    assert good >= 39
    assert max(shares) <= 0.2
    assert too_large == 0, "the line through two trials rules out what does not fit"


def test_it_stops_growing_where_twice_the_batch_gains_little(tmp_path: Path) -> None:
    turned = _batches(4, 8, 16, 32, 64, 128, 256)
    formula = Formula(lambda setting: 100.0 if setting["batch"] >= 16 else 6.0 * setting["batch"])

    points = search(tmp_path, formula, find_knee(turned, SPEED, LENGTHS))

    assert _chosen(points, turned) == {"batch": 16}
    assert max(ask.setting["batch"] for ask in formula.asked) == 32


def test_out_of_memory_is_a_result_and_the_largest_that_fits_is_found(tmp_path: Path) -> None:
    """Memory is not measured here, so only trying tells."""
    turned = _batches(*range(4, 65))

    def measure(ask: Ask) -> Trial:
        size = ask.setting["batch"]
        if size > 41:
            return Trial("x", {}, "out of memory", verbatim("no room"))
        return Trial("x", {}, "stopped", step_s=(1.0,) * ask.steps, samples=(float(size),) * ask.steps)

    points = search(tmp_path, measure, find_knee(turned, SPEED, LENGTHS), MemoryModel([turned], None))

    assert _chosen(points, turned) == {"batch": 41}
    assert sum(point.tried for point in points) <= 13
    failed = [point for point in points if point.why]
    assert failed and all("out of memory" in english(point.why) for point in failed)


def test_sizes_that_will_not_fit_are_told_without_a_trial() -> None:
    fits = MemoryModel([_batches(4, 8, 16, 64), knob("deep", True, False)], 10 * GIB)
    for size in (4, 8):
        fits.learn(Point({"batch": size, "deep": True}, 8, memory_bytes=(1 + size / 4) * GIB))

    too_large = fits.obstacle({"batch": 64, "deep": True})
    assert too_large is not None and english(too_large) == "not tried: would need about 17.0 of 10.0 GiB"
    assert fits.obstacle({"batch": 16, "deep": True}) is None
    assert fits.obstacle({"batch": 64, "deep": False}) is None, "another model, another line"
    why = describe_ending(Trial("a", {}, "out of memory", why=verbatim("no room")))
    fits.learn(Point({"batch": 16, "deep": False}, 8, why=why))
    too_large = fits.obstacle({"batch": 64, "deep": False})
    assert too_large is not None and english(too_large) == "not tried: 16 was out of memory already"
