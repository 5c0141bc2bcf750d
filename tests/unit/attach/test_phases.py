"""The state machine on made-up events: what a loop of some shape comes to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.attach import tracer as ev
from flatout.attach.phases import PENDING, Phases, StepWriter
from flatout.attach.recorder import Recorder
from flatout.attach.watch.lines import current_phase
from flatout.attach.wire import BACKWARD, DATA, EVAL, FORWARD, GC, H2D, OPTIMIZER, OTHER, SYNC
from flatout.store.recording import Recording, read_recording

TRAIN, VALIDATE = 1 << 5, 2 << 5
FIRST, SECOND = 1 << 5, 2 << 5
BATCH = 16 << 21 | ev.ARRIVED
BACKWARD_PASS = (ev.BACKWARD_BEGINS, ev.BACKWARD_ENDS)
STEP = (TRAIN | ev.REQUEST, BATCH, *BACKWARD_PASS, FIRST | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS)


def read(folder: Path, codes: Sequence[int], seconds: float = 0.01, graph_samples: int = 0) -> Recording:
    """What these events, `seconds` apart, leave on record."""
    recorder = Recorder(str(folder / "made.rec"), {"pid": 1})
    phases = Phases(StepWriter(lambda: recorder))
    phases.graph_samples = graph_samples
    phases.begin(100.0)
    phases.consume(codes, [100.0 + seconds * (i + 1) for i in range(len(codes))])
    phases.finish()
    recorder.close()
    return read_recording(folder / "made.rec")


def milliseconds(recording: Recording, phase: int) -> list[int]:
    return [round(float(s) * 1000) for s in recording.records["step"]["phase_s"][:, phase]]


def test_an_epoch_loop(tmp_path: Path) -> None:
    seen = read(tmp_path, STEP * 3)

    steps = seen.records["step"]
    assert list(steps["steps"]) == [1, 1, 1] and list(steps["samples"]) == [16, 16, 16]
    assert milliseconds(seen, DATA) == milliseconds(seen, FORWARD) == [10, 10, 10]
    assert milliseconds(seen, BACKWARD) == milliseconds(seen, OPTIMIZER) == [10, 10, 10]
    # Before a batch is asked for, and between backward and optimizer.
    assert milliseconds(seen, OTHER) == [20, 20, 20]


def test_a_collection_that_logs_between_an_events_moment_and_the_event(tmp_path: Path) -> None:
    """The clock was read before it and logged after it: no phase is shorter than nothing for that."""
    codes = (*STEP[:2], ev.ENTER_GC, ev.LEAVE, *STEP[2:])
    moments = [100.01, 100.02, 100.05, 100.08, 100.03, 100.09, 100.10, 100.11]
    recorder = Recorder(str(tmp_path / "made.rec"), {"pid": 1})
    phases = Phases(StepWriter(lambda: recorder))
    phases.begin(100.0)
    phases.consume(codes, moments)
    recorder.close()
    seen = read_recording(tmp_path / "made.rec")

    (step,) = seen.records["step"]
    assert milliseconds(seen, GC) == [30] and milliseconds(seen, BACKWARD) == [10]
    assert (step["phase_s"] >= 0).all()
    assert step["phase_s"].sum() == pytest.approx(0.11, abs=1e-4) and step["wall_ns"] == pytest.approx(0.11e9, rel=1e-3)


def test_gradient_accumulation_counts_all_samples_of_one_step(tmp_path: Path) -> None:
    micro = (TRAIN | ev.REQUEST, BATCH, *BACKWARD_PASS)
    seen = read(tmp_path, (*micro * 4, FIRST | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS))

    assert list(seen.records["step"]["samples"]) == [64]
    assert list(seen.records["step"]["backwards"]) == [4]


def test_two_optimizers_in_turn_are_one_step(tmp_path: Path) -> None:
    second = (*BACKWARD_PASS, SECOND | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS)
    seen = read(tmp_path, (*STEP, *second) * 2)

    assert list(seen.records["step"]["samples"]) == [16, 16]
    # Between the first optimizer and the second backward lies a forward pass.
    assert milliseconds(seen, FORWARD) == [20, 20]


def test_without_a_loader_the_time_before_a_backward_is_the_forward(tmp_path: Path) -> None:
    update = (*BACKWARD_PASS, FIRST | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS)
    seen = read(tmp_path, update * 2, graph_samples=8)

    assert milliseconds(seen, FORWARD) == [10, 10]
    assert list(seen.records["step"]["samples"]) == [8, 8]


def test_the_size_of_a_batch_nobody_knows_is_not_zero(tmp_path: Path) -> None:
    seen = read(tmp_path, (*BACKWARD_PASS, FIRST | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS))

    assert list(seen.records["step"]["samples"]) == [0xFFFFFFFF]


def test_a_rollout_without_gradients_is_no_forward(tmp_path: Path) -> None:
    rollout = (ev.ENTER_SYNC_NO_GRAD, ev.LEAVE)
    seen = read(tmp_path, (*STEP, *rollout, *STEP[2:]))

    assert milliseconds(seen, OTHER)[1] == 20 and milliseconds(seen, SYNC)[1] == 10


def test_a_loader_under_no_grad_is_evaluation_with_all_that_happens_in_it(tmp_path: Path) -> None:
    evaluation = (VALIDATE | ev.REQUEST_NO_GRAD, BATCH, ev.ENTER_SYNC, ev.LEAVE)
    seen = read(tmp_path, (*STEP, *evaluation, *evaluation, *STEP))

    assert milliseconds(seen, EVAL) == [0, 80]
    assert milliseconds(seen, SYNC) == [0, 0]
    assert list(seen.records["step"]["samples"]) == [16, 16]
    (span,) = seen.records["span"]
    assert (span["end_ns"] - span["start_ns"]) * 1e-9 == pytest.approx(0.08)


def test_an_evaluation_begins_with_eval_though_its_loader_is_asked_later(tmp_path: Path) -> None:
    evaluation = (ev.EVAL_CALLED, VALIDATE | ev.REQUEST_NO_GRAD, BATCH)
    seen = read(tmp_path, (*STEP, *evaluation, *STEP))

    assert milliseconds(seen, EVAL) == [0, 30] and milliseconds(seen, OTHER) == [20, 20]
    (span,) = seen.records["span"]
    assert (span["end_ns"] - span["start_ns"]) * 1e-9 == pytest.approx(0.03)


def test_a_training_loader_first_met_after_some_eval_call_is_no_evaluation(tmp_path: Path) -> None:
    seen = read(tmp_path, (ev.EVAL_CALLED, *STEP, *STEP))

    assert milliseconds(seen, EVAL) == [0, 0]
    assert list(seen.records["step"]["samples"]) == [16, 16]


def test_a_batch_fetched_ahead_is_counted_once(tmp_path: Path) -> None:
    fetch = (TRAIN | ev.REQUEST, BATCH)
    seen = read(tmp_path, (*fetch, *STEP, *STEP, *STEP[2:]), graph_samples=16)

    assert int(seen.records["step"]["samples"].sum()) == 48


def test_an_optimizer_inside_another_is_part_of_its_step(tmp_path: Path) -> None:
    inner = (SECOND | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS)
    seen = read(tmp_path, (*STEP[:-1], *inner, STEP[-1]) * 3)

    assert list(seen.records["step"]["steps"]) == [1, 1, 1]


def paced(phases: Phases, step: Sequence[int], seconds: float, steps: int = 1200) -> float:
    """Read so many steps in two goes, as the pace of the second goes by the first; the moment at the end."""
    now = 0.0
    for _ in range(2):
        codes, moments = [], []
        for _ in range(steps // 2):
            for code in step:
                now += seconds / len(step)
                codes.append(code)
                moments.append(now)
        phases.consume(codes, moments)
    return now


def test_steps_glossed_over_are_taken_to_be_like_the_one_before(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "made.rec"), {})
    phases = Phases(StepWriter(lambda: recorder))
    phases.begin(0.0)
    now = paced(phases, STEP, 0.0006, 2400)
    assert phases.rest_for > 0

    now += 7 * 0.0006
    phases.consume(
        [*STEP, ev.REST, 7 << 5 | ev.GLOSSED_OVER],
        [*(now - 0.0042 + 0.0001 * (i + 1) for i in range(6)), now - 0.0036, now + 0.0006],
    )
    assert phases.rest_for > 0
    phases.finish()
    recorder.close()

    steps = read_recording(tmp_path / "made.rec").records["step"]
    assert int(steps["steps"].sum()) == 2408 and int(steps["samples"].sum()) == 2408 * 16
    total = steps["phase_s"].astype(float).sum(axis=0)
    assert total.sum() == pytest.approx(now + 0.0006)
    assert total[DATA] == pytest.approx(total[FORWARD]) == pytest.approx(total.sum() / 6, rel=0.01)


COPYING = (TRAIN | ev.REQUEST, BATCH, *(ev.ENTER_H2D, ev.LEAVE) * 2, *STEP[2:])


def test_on_a_device_short_steps_are_looked_at_as_their_time_allows(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "made.rec"), {})
    rests = {}
    for seconds in (0.001, 0.004, 1.0):
        phases = Phases(StepWriter(lambda: recorder))
        phases.on_device = True
        phases.begin(0.0)
        paced(phases, COPYING, seconds, 600)
        rests[seconds] = phases.rest_for
    recorder.close()

    assert rests[0.001] > rests[0.004] > 0 == rests[1.0]


def test_what_a_counted_step_waits_is_still_seen(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "made.rec"), {})
    phases = Phases(StepWriter(lambda: recorder))
    phases.on_device = True
    phases.begin(0.0)
    now = paced(phases, COPYING, 0.001, 600)
    assert phases.rest_for > 0

    # Three steps that are only counted, of 1 ms each, and a wait of 5 ms in one of them.
    phases.consume(
        [ev.REST, ev.ENTER_SYNC_NO_GRAD, ev.LEAVE, 3 << 5 | ev.GLOSSED_OVER],
        [now, now + 0.001, now + 0.006, now + 0.008],
    )
    phases.finish()
    recorder.close()

    last = read_recording(tmp_path / "made.rec").records["step"][-1]
    assert last["steps"] == 3 and last["copies"] == 6 and last["syncs"] == 1
    assert last["phase_s"][SYNC] == pytest.approx(0.005)
    # The rest is divided like the step before: a part of it was copying.
    assert last["phase_s"][H2D] == pytest.approx(last["phase_s"][BACKWARD] * 2, rel=0.05)
    assert last["phase_s"].astype(float).sum() == pytest.approx(0.008)


@given(st.lists(st.sampled_from(range(22)), max_size=60))
def test_whatever_happens_no_time_is_lost(tmp_path_factory: pytest.TempPathFactory, codes: list[int]) -> None:
    seen = read(tmp_path_factory.mktemp("any"), [*codes, *STEP, *STEP])

    steps = seen.records["step"]
    phases_s = steps["phase_s"].astype(float).sum(axis=1)
    assert np.allclose(phases_s, steps["wall_ns"] * 1e-9, rtol=1e-3, atol=1e-6)


LOADERLESS = STEP[2:]


def test_an_evaluation_without_a_loader_runs_from_eval_to_train(tmp_path: Path) -> None:
    wait = (ev.ENTER_SYNC_NO_GRAD, ev.LEAVE)
    seen = read(tmp_path, (*LOADERLESS * 2, ev.EVAL_CALLED, *wait, ev.TRAIN_CALLED, *LOADERLESS))

    # From eval() to train(), the wait as well; what comes before it and after it is the next step's.
    assert milliseconds(seen, EVAL) == [0, 0, 30]
    assert milliseconds(seen, SYNC) == [0, 0, 0]
    assert len(seen.records["span"]) == 1


def test_a_part_of_the_model_that_is_put_into_eval_mode_each_step_evaluates_nothing(tmp_path: Path) -> None:
    seen = read(tmp_path, (*LOADERLESS, ev.EVAL_CALLED, *LOADERLESS, ev.EVAL_CALLED, *LOADERLESS))

    assert milliseconds(seen, EVAL) == [0, 0, 0]
    assert milliseconds(seen, FORWARD)[1:] == [20, 20]


@pytest.mark.parametrize(
    ("step", "phase"),
    [
        (STEP, OTHER),  # until a batch is asked for
        (STEP[2:], FORWARD),  # no loader: what follows a step is the next forward pass
        ((ev.ENTER_H2D, ev.LEAVE, *STEP[2:]), OTHER),  # until a batch made by hand is copied
        ((*BACKWARD_PASS, *STEP[2:]), FORWARD),  # several backward passes a step
    ],
)
def test_what_follows_a_step_is_known_from_the_one_before(tmp_path: Path, step: Sequence[int], phase: int) -> None:
    recorder = Recorder(str(tmp_path / "made.rec"), {"pid": 1})
    phases = Phases(StepWriter(lambda: recorder))
    phases.begin(100.0)
    codes = (*step, *step, *step)
    phases.consume(codes, [100.0 + 0.01 * (i + 1) for i in range(len(codes))])

    assert phases.after_step == phase


@pytest.mark.parametrize(
    ("codes", "phase"),
    [
        ([], OTHER),
        (STEP[:1], DATA),
        (STEP[:2], FORWARD),
        (STEP[:3], BACKWARD),
        (STEP[:5], OPTIMIZER),
        (STEP, PENDING),
        ((*STEP, ev.EVAL_CALLED), EVAL),
        ((*STEP, ev.EVAL_CALLED, ev.TRAIN_CALLED), PENDING),
        ((*STEP[:2], ev.ENTER_SYNC), SYNC),
        ((*STEP[:2], ev.ENTER_SYNC, ev.LEAVE), FORWARD),
        ((VALIDATE | ev.REQUEST_NO_GRAD, BATCH), EVAL),
    ],
)
def test_one_who_looks_in_sees_the_open_phase(codes: Sequence[int], phase: int) -> None:
    assert current_phase(codes, OTHER) == phase
