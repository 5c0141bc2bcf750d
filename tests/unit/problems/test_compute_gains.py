"""What the counters of a card say about better kernels: the figures are those of recordings of an H200."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.problems.catalogue import problems
from flatout.problems.compute.device import needed_shares, unit_activity
from flatout.records.evidence import Evidence, GpuState, Padding
from flatout.records.message import message
from flatout.records.report import Gain, RunFacts
from tests.cases.evidence import on_gpu, run

FACTS = RunFacts("run", ("train.py",), 0, 100, 5.5, 1, "NVIDIA H200", "2.11.0", "3.12")
FIRST = {"convolution_layouts": {"channels_first bfloat16": 1.0}, "convolution_share": 0.96}
HELD = {"cudnn_deterministic": True, "convolution_share": 1.0, "grad_dtypes": {"float32": 1.0}}
FLOAT32 = {"matmul_precision": "high", "grad_dtypes": {"float32": 1.0}}


def recorded(
    state: dict[str, Any], passes_ms: tuple[float, float], memory: float | None, tensor: float, at_work: float = 0.947
) -> Evidence:
    forward, backward = passes_ms
    ms = {"forward": forward, "backward": backward, "optimizer": 0.1}
    gpu = on_gpu(starved_share=None, sm_active=at_work, tensor_active=tensor, drained_share=0.0, device_ms=ms)
    card = (GpuState(0, dram_active=memory),)
    live = {"torch": state, "loaders": [], "optimizers": []}
    return run(gpu=gpu, gpus=card, ms=ms, loaders=(), run=FACTS, live=live)


def gain(code: str, evidence: Evidence) -> Gain | None:
    problem = next(known for known in problems() if known.code == code)
    (found,) = problem.found_in_run(evidence)
    return found.predicted_gain


@pytest.mark.parametrize(
    ("code", "evidence", "actual"),
    [
        ("CO506", recorded(FIRST, (22.0, 32.0), 0.327, 0.081), 1.77),
        ("CO503", recorded(HELD, (1.3, 2.3), 0.307, 0.14, 0.857), 1.20),
        ("CO502", recorded(FLOAT32, (9.4, 24.2), 0.286, 0.344, 0.909), 1.98),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_gain_is_near_what_was_reached(code: str, evidence: Evidence, actual: float) -> None:
    predicted = gain(code, evidence)

    assert predicted is not None
    assert predicted.low < actual < predicted.high
    assert predicted.mid == pytest.approx(actual, rel=0.2)


def test_padding_gains_what_the_proposed_change_would_leave() -> None:
    zeros = message("padding.value", value=0)
    # Three quarters are padding; each batch's own longest sequence leaves a half, sorting hardly any.
    trimmed, sorted_only = (
        gain("CO507", run(loaders=(), padding=Padding(3, 96, 64.0, 0.75, share, 0.02, zeros, 1.0)))
        for share in (0.5, 0.75)
    )

    assert trimmed is not None and trimmed.mid == pytest.approx(100 / (100 - 0.5 * 89), rel=0.02)
    assert sorted_only is not None and sorted_only.mid > 1.5 * trimmed.mid


def test_idle_time_in_between_changes_nothing() -> None:
    whole, half = (recorded(FIRST, (22.0, 32.0), 0.32 * part, 0.08 * part, 0.96 * part) for part in (1.0, 0.6))

    assert needed_shares(whole) == pytest.approx(needed_shares(half))


def test_what_is_not_counted_promises_nothing() -> None:
    assert gain("CO506", recorded(FIRST, (22.0, 32.0), None, 0.08)) is None
    assert gain("CO503", recorded(HELD, (22.0, 32.0), None, 0.08)) is None


def test_few_processors_at_work_say_nothing() -> None:
    assert unit_activity(recorded(FIRST, (22.0, 32.0), 0.1, 0.02, 0.3)) is None


def test_a_switch_for_convolutions_promises_nothing_without_any() -> None:
    assert gain("CO503", recorded({**HELD, "convolution_share": 0.0}, (22.0, 32.0), 0.3, 0.1)) is None


def test_a_switch_for_everything_may_gain_without_convolutions() -> None:
    state = {**HELD, "convolution_share": 0.0, "deterministic_algorithms": True}

    predicted = gain("CO503", recorded(state, (22.0, 32.0), 0.3, 0.1))

    # It may gain hardly anything; what two equal runs differ by is in the interval too.
    assert predicted is not None and predicted.low < 1.05 < predicted.mid < predicted.high
