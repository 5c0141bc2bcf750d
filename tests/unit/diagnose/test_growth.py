"""Work of the script that takes longer from step to step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flatout.attach import wire
from flatout.diagnose.growth import find_growing_work
from flatout.diagnose.ledger import make_ledger
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import GrowingWork
from flatout.records.report import Location
from tests.unit.making import MS, Making, body

EPOCH, EPOCHS = 80, 3
PASSES_MS = 10.0
METRIC, MODEL = 0, 1
Ms = Callable[[int, int], float]


def find(
    making: Making, other_ms: Ms, passes_ms: Ms = lambda step, _: PASSES_MS, grows: int = METRIC, is_fed: bool = True
) -> GrowingWork | None:
    """In a run whose other work and passes take so long, by the step's number in the run and in its epoch.

    Line METRIC is the script's own, line MODEL within a module; the one that `grows` is seen for all of the other work.
    """
    process, lines = making.process(), making.lines()
    process.text("torch", {"training_loaders": [0] if is_fed else []})
    for number in (METRIC, MODEL):
        lines.text("line", {"id": number, "file": "train.py", "line": number + 1, "function": f"line_{number}"})
    slice_ns, seen_ms = process.now_ns, 0.0
    for step in range(EPOCH * EPOCHS):
        if is_fed and step % EPOCH == 0:
            process.append(body("epoch", 0, 0, process.now_ns, process.now_ns))
        other, passes = other_ms(step, step % EPOCH), passes_ms(step, step % EPOCH)
        wall = other + passes
        process.step(wall, {"backward": 0.8 * passes / wall, "optimizer": 0.2 * passes / wall, "other": other / wall})
        seen_ms += other
        if process.now_ns - slice_ns > 300 * MS:
            # Whose, nature, and since when.
            whose = 1 if grows == MODEL else 0
            seen = int(seen_ms), seen_ms * 1e-3
            lines.append(body("line", grows, wire.OTHER, *seen, wire.NATIVE, whose, slice_ns))
            slice_ns, seen_ms = process.now_ns, 0.0
    process.end()
    lines.end()
    run = making.stored()
    ranks = training_ranks(run)
    return find_growing_work(ranks, make_ledger(ranks, summarise_run(run).phases))


def test_what_grows_over_the_run_is_found_with_its_line(making: Making) -> None:
    work = find(making, lambda step, _: 1.0 + 0.1 * step, is_fed=False)

    assert work is not None
    assert (work.since, work.location, work.function) == ("run", Location("train.py", 1), "line_0")
    assert work.first_ms == pytest.approx(1.0, abs=0.2) and work.last_ms == pytest.approx(24.9, rel=0.05)
    assert sum(work.grown_ms.values()) == pytest.approx(0.1 * (EPOCH * EPOCHS - 1) / 2, rel=0.05)


def test_what_begins_again_with_each_epoch_is_of_the_epoch(making: Making) -> None:
    work = find(making, lambda _, of_epoch: 1.0 + 0.2 * of_epoch)

    assert work is not None
    assert work.since == "epoch" and work.steps == pytest.approx(EPOCH, abs=1)
    assert sum(work.grown_ms.values()) == pytest.approx(0.2 * (EPOCH - 1) / 2, rel=0.15)


def test_a_loop_without_a_loader_shows_where_it_begins_again_by_its_time(making: Making) -> None:
    work = find(making, lambda _, of_epoch: 1.0 + 0.2 * of_epoch, is_fed=False)

    assert work is not None
    assert work.since == "epoch" and work.steps == pytest.approx(EPOCH, abs=2)
    assert sum(work.grown_ms.values()) == pytest.approx(0.2 * (EPOCH - 1) / 2, rel=0.15)


def test_a_machine_that_gets_slower_is_not_the_scripts_doing(making: Making) -> None:
    def slower(step: int, _: int) -> float:
        return 1.0 + 0.02 * step

    assert find(making, lambda step, _: 5.0 * slower(step, 0), lambda step, _: PASSES_MS * slower(step, 0)) is None


def test_a_model_may_be_meant_to_grow(making: Making) -> None:
    assert find(making, lambda step, _: 1.0 + 0.1 * step, grows=MODEL) is None


@pytest.mark.parametrize(
    "other_ms",
    [
        lambda step, _: 5.0,
        lambda step, _: 5.0 + 2.0 * (step % 7),
        # A buffer that is full soon.
        lambda step, _: 1.0 + min(step, 20) * 0.5,
        # In stretches, as others come and go.
        lambda step, _: 20.0 if step // 30 % 2 else 5.0,
        # Now and then.
        lambda step, _: 40.0 if step % 60 == 59 else 1.0,
        # What gets quicker: a cache that fills.
        lambda step, _: 30.0 - 0.1 * step,
    ],
)
def test_other_work_does_not_grow(making: Making, other_ms: Ms) -> None:
    assert find(making, other_ms) is None
