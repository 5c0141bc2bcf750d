"""Plays models of a step whose time is known by reckoning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.model.edits import (
    AtLeast,
    BatchCosts,
    EvenBatches,
    LessDevice,
    LessHost,
    LessPause,
    MoreBatch,
    NoStarts,
    NoSync,
    Prefetch,
    ReadyBatches,
    Workers,
    apply_edits,
)
from flatout.model.simulation import simulate
from flatout.model.step import Device, Loader, Pause, Processors, StepModel

ALONE = StepModel(step_ms=40.0, host_ms={"forward": 10.0, "backward": 20.0, "optimizer": 10.0})
LOADER = Loader(workers=2, prefetch=2, batch_ms=100.0, computing=1.0, taking_ms=1.0, handover_ms=1.0)
FED = replace(ALONE, step_ms=50.0, loader=LOADER, processors=Processors(16.0))
BEHIND = replace(ALONE, step_ms=60.0, device=Device(work_ms=50.0, lag_ms=10.0, synced=1.0))


def step_ms(model: StepModel) -> float:
    return simulate(model).step_ms


def test_a_training_thread_alone_takes_the_sum_of_its_work() -> None:
    assert step_ms(ALONE) == pytest.approx(40.0)
    assert step_ms(LessHost(15.0, "forward").apply(ALONE)) == pytest.approx(25.0)
    assert step_ms(LessHost(500.0).apply(ALONE)) > 0


def test_two_busy_workers_set_the_pace_until_there_are_enough() -> None:
    assert step_ms(FED) == pytest.approx(50.0, rel=0.02)
    assert step_ms(Workers(4).apply(FED)) == pytest.approx(41.0, rel=0.02)
    assert step_ms(BatchCosts(20.0, 100.0).apply(FED)) == pytest.approx(41.0, rel=0.02)


def test_processes_that_share_two_processors_take_longer_together() -> None:
    crowded = replace(FED, processors=Processors(2.0))

    # 100 ms of workers and 41 of the training thread for each step, by two processors.
    assert step_ms(Workers(4).apply(crowded)) > 70.0
    assert simulate(crowded).worker_stretch > 1.1


def test_threads_that_go_on_together_lose_more_to_workers_than_one_alone() -> None:
    apart = replace(FED, processors=Processors(2.0, main=2.0))
    both = replace(FED, processors=Processors(2.0, main=2.0, together=1.5))

    assert step_ms(both) > 1.1 * step_ms(apart)
    # Without workers there is nobody to lose to.
    assert step_ms(ReadyBatches(1.0).apply(both)) == pytest.approx(step_ms(ReadyBatches(1.0).apply(apart)))


def test_passes_after_a_start_are_slow_for_as_long_as_the_next_batches_are_made_if_workers_stay() -> None:
    starting = replace(LOADER, epoch_steps=4.0, after_start_ms=80.0)
    ends, stays = (replace(FED, loader=replace(starting, stays=stays)) for stays in (False, True))
    cheaper = BatchCosts(10.0, 100.0)

    assert step_ms(ends) == step_ms(stays)
    assert step_ms(cheaper.apply(ends)) - step_ms(cheaper.apply(stays)) == pytest.approx(0.9 * 80.0 / 4, rel=0.1)


def test_workers_that_wait_need_no_processor_of_their_own() -> None:
    waiting = replace(FED, processors=Processors(2.0), loader=replace(LOADER, computing=0.05))

    assert step_ms(Workers(6).apply(waiting)) < 45.0


def test_ready_batches_still_have_to_be_taken() -> None:
    alone = replace(FED, loader=replace(LOADER, workers=0, batch_ms=10.0, taking_ms=0.5, handover_ms=2.0))

    assert step_ms(ReadyBatches(10.5).apply(alone)) == pytest.approx(42.0)
    quick = replace(alone, loader=replace(alone.loader or LOADER, batch_ms=1.0))
    assert step_ms(ReadyBatches(1.5).apply(quick)) == pytest.approx(step_ms(quick))


def test_threads_of_a_library_move_with_its_calls() -> None:
    two = replace(FED, processors=Processors(2.0), loader=replace(LOADER, workers=1, batch_ms=1.0))
    moved = [LessHost(15.0, "forward"), MoreBatch(15.0)]

    assert step_ms(apply_edits(two, moved)) < 30.0
    assert step_ms(apply_edits(two, [*moved[:1], MoreBatch(15.0, wants=2.0)])) > 30.0


def test_a_slow_batch_is_bridged_by_more_batches_ahead() -> None:
    loader = replace(LOADER, workers=1, prefetch=1, batch_ms=20.0, slow_share=0.1, slow_ms=150.0)
    late = replace(FED, loader=loader)

    assert step_ms(late) > 48.0
    assert step_ms(Prefetch(8).apply(late)) < 42.0
    assert step_ms(EvenBatches().apply(late)) == pytest.approx(41.0, rel=0.02)


def test_starts_of_epochs_cost_what_they_take() -> None:
    often = replace(FED, loader=replace(LOADER, batch_ms=20.0, epoch_steps=10.0, start_ms=200.0))

    # 200 ms and the making of the first batch, every ten steps.
    assert step_ms(often) == pytest.approx(41.0 + 22.0, rel=0.03)
    assert step_ms(NoStarts(200.0).apply(often)) == pytest.approx(43.0, rel=0.03)
    assert step_ms(NoStarts(200.0, never=True).apply(often)) == pytest.approx(41.0, rel=0.03)


def test_starts_of_long_epochs_are_added() -> None:
    seldom = replace(FED, loader=replace(LOADER, batch_ms=20.0, epoch_steps=100.0, start_ms=200.0))

    assert step_ms(seldom) - step_ms(NoStarts(200.0).apply(seldom)) == pytest.approx(2.0, rel=0.05)


def test_a_host_that_waits_for_the_device_gains_no_more_than_the_device_leaves() -> None:
    assert step_ms(BEHIND) == pytest.approx(60.0)
    assert step_ms(NoSync(20.0, 20.0).apply(BEHIND)) == pytest.approx(50.0)
    assert step_ms(apply_edits(BEHIND, [NoSync(20.0, 20.0), LessDevice(30.0)])) == pytest.approx(40.0)


def test_a_busy_device_hides_what_the_host_is_spared() -> None:
    busy = replace(FED, device=Device(work_ms=60.0), loader=replace(LOADER, batch_ms=20.0))

    assert step_ms(busy) == pytest.approx(60.0, rel=0.01)
    assert step_ms(LessHost(20.0).apply(busy)) == pytest.approx(60.0, rel=0.01)


def test_a_long_pause_is_part_of_every_mean_step() -> None:
    paused = replace(ALONE, pauses={"eval": Pause(30.0)}, device=Device(work_ms=35.0))

    assert step_ms(paused) == pytest.approx(70.0)
    assert step_ms(LessPause("eval", 27.0, times=10).apply(paused)) == pytest.approx(43.0)
    # What prepares it is in the step.
    assert step_ms(LessPause("eval", 32.0).apply(paused)) == pytest.approx(38.0)


def test_something_beside_the_training_thread_may_bind() -> None:
    assert step_ms(apply_edits(ALONE, [LessHost(30.0), AtLeast(25.0)])) == pytest.approx(25.0)


def test_equal_models_take_equal_time() -> None:
    uneven = replace(FED, loader=replace(LOADER, slow_share=0.2, slow_ms=300.0), spread=(0.5, 1.5, 1.0))

    assert simulate(uneven) == simulate(uneven)


def test_a_thread_that_waited_computes_slower_afterwards() -> None:
    asleep = replace(ALONE, host_ms={"forward": 25.0, "backward": 5.0}, idle_ms=20.0)

    # Ten milliseconds of computing after twenty of sleep.
    assert 31.0 < step_ms(asleep) < 34.0
    assert step_ms(LessHost(20.0, "forward", is_idle=True).apply(asleep)) == pytest.approx(10.0)
    # A device is not slower because its host slept.
    assert step_ms(replace(asleep, device=Device(work_ms=5.0))) == pytest.approx(30.0)


def test_other_work_in_the_step_is_no_computing_that_a_wait_slows_down() -> None:
    asleep = replace(ALONE, host_ms={"forward": 35.0, "backward": 5.0}, idle_ms=20.0)
    parsing = replace(asleep, aside_ms={"forward": 34.0})

    # Twenty milliseconds of computing after as much sleep; or six, beside fourteen of Python.
    assert step_ms(asleep) - 40.0 > 2.0
    assert 0.0 < step_ms(parsing) - 40.0 < 2.0
    left = LessHost(34.0, "forward", is_idle=True).apply(parsing)
    assert left.aside_ms == {"forward": 0.0} and left.beside_ms == 0.0
    assert LessHost(1.0, "forward", of_model=True).apply(parsing).aside_ms == {"forward": 34.0}


def test_computing_may_be_slower_after_other_work_and_after_pauses_too() -> None:
    parsing = replace(ALONE, aside_ms={"forward": 10.0})
    often = replace(ALONE, pauses={"logging": Pause(30.0)})
    seldom = replace(ALONE, pauses={"logging": Pause(30.0, every=10.0)})

    assert step_ms(parsing) == pytest.approx(40.0)
    assert 42.0 < step_ms(replace(parsing, work_cools=1.0)) <= 43.0
    # Three hundred milliseconds every ten steps are felt by one step of ten.
    assert step_ms(replace(often, work_cools=1.0)) == pytest.approx(73.0)
    assert step_ms(replace(seldom, work_cools=1.0)) == pytest.approx(70.3)
    # A pause that sleeps is a wait.
    assert step_ms(replace(often, idle_ms=30.0)) == pytest.approx(73.0)
    assert LessPause("logging", 27.0, times=10).apply(often).pauses["logging"] == Pause(3.0, every=10.0)


def test_what_was_measured_longer_is_taken_away_as_it_would_be() -> None:
    parsing = replace(ALONE, host_ms={"forward": 15.0, "backward": 10.0}, aside_ms={"forward": 5.0}, warm=(0.5, 1.0))

    assert LessHost(6.0, "backward", of_model=True).apply(parsing).host_ms["backward"] == pytest.approx(7.0)
    # Five milliseconds of other work, and one of computing.
    assert LessHost(6.0, "forward").apply(parsing).host_ms["forward"] == pytest.approx(9.5)
