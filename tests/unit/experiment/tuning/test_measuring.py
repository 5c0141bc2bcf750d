"""From a trial to a point: a rate that bursts and one pause do not spoil, and settings that were not in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.experiment.tuning.search import rate, read_point
from flatout.records.message import Message, message, verbatim
from flatout.records.report import RemedyState
from flatout.records.trial import Ending, Trial
from flatout.records.tune import Ask
from flatout.words import english

ASK = Ask({"workers": 4}, 40)

_SET = message("workers.set", before=0, after=8)


def _left_alone(why: str) -> Message:
    return message("loader.left_alone", why=verbatim(why))


def test_a_steady_training_is_sure() -> None:
    speed, error = rate([0.1] * 40, [4.0] * 40)

    assert speed == pytest.approx(40) and error == pytest.approx(0, abs=1e-9)


def test_bursts_count_with_their_waits() -> None:
    # Twelve batches at once, then a wait for the next round of the workers.
    times = ([0.5] + [0.01] * 11) * 4

    speed, _ = rate(times, [1.0] * len(times))

    assert speed == pytest.approx(48 / sum(times), rel=1e-6)


def test_one_long_pause_is_left_out() -> None:
    times = [0.1] * 20 + [60.0] + [0.1] * 27

    speed, _ = rate(times, [1.0] * len(times))

    assert speed == pytest.approx(10, rel=0.01)


def test_noise_shows_in_the_error() -> None:
    times = [0.1, 0.2] * 3 + [0.3, 0.1] * 3 + [0.1] * 12

    _, error = rate(times, [1.0] * len(times))

    assert error is not None and 0.03 < error < 0.5


@pytest.mark.parametrize(("times", "samples"), [([], []), ([0.1] * 4, [0.0] * 4), ([0.1] * 4, [])])
def test_what_was_not_counted_is_no_rate(times: list[float], samples: list[float]) -> None:
    assert rate(times, samples) == (None, None)


def _trial(ending: Ending = "stopped", why: str = "", *states: RemedyState) -> Trial:
    return Trial(
        "x", {}, ending, verbatim(why), step_s=(0.1,) * 8, samples=(2.0,) * 8, states=states, host_peak_bytes=5
    )


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (_trial(), ""),
        (_trial("out of memory", "CUDA out of memory"), "out of memory: CUDA out of memory"),
        (_trial("hung"), "hung"),
        (
            _trial("stopped", "", RemedyState("loader.pin", "lossless", True, "refused", verbatim("there is no CUDA"))),
            "loader.pin was not applied, because there is no CUDA",
        ),
        (
            _trial("stopped", "", RemedyState("precision.fp16", "numeric", True, "reverted", verbatim("NaN"), 7)),
            "precision.fp16 was undone after 7 steps, because NaN",
        ),
        (
            _trial(
                "stopped", "", RemedyState("batch.size", "training", 8, "applied", live={"a:1": _left_alone("small")})
            ),
            "batch.size left the loader alone: small",
        ),
        (
            # An evaluation's loader may be left alone where the training's is not.
            _trial(
                "stopped", "", RemedyState("w", "lossless", 8, "applied", live={"a:1": _left_alone("x"), "a:2": _SET})
            ),
            "",
        ),
    ],
)
def test_a_setting_that_was_not_in_force_was_not_measured(trial: Trial, why: str) -> None:
    assert english(read_point(ASK, trial).why) == why


def test_memory_is_the_devices_where_there_is_one() -> None:
    on_host = read_point(ASK, replace(_trial(), wall_s=20.0))
    too_short = read_point(ASK, replace(_trial(), wall_s=4.0))
    on_device = read_point(ASK, Trial("x", {}, "stopped", device_peak_bytes=7, host_peak_bytes=5))

    assert (on_host.memory_bytes, on_host.is_device_memory) == (5, False)
    assert too_short.memory_bytes is None, "read once, before it had taken any"
    assert (on_device.memory_bytes, on_device.is_device_memory) == (7, True)
