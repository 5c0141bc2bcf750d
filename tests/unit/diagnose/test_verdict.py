from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.verdict import judge_bound, make_checklist, removable, with_needless
from flatout.records.evidence import Evidence, Series
from flatout.records.message import verbatim
from flatout.records.report import PHASES, Check, GpuUse, PhaseShare
from flatout.report.terminal import render_checklist
from flatout.words import english
from tests.cases.evidence import on_gpu, run

STEP_MS = 50.0


def phases(**shares: float) -> dict[str, PhaseShare]:
    shares["forward"] = shares.get("forward", 0.0) + 1.0 - sum(shares.values())
    return {name: PhaseShare(shares.get(name, 0.0), shares.get(name, 0.0) * STEP_MS) for name in PHASES}


@pytest.mark.parametrize(
    ("shares", "starved", "drained", "bound", "healthy"),
    [
        ({"data": 0.5}, 0.5, 0.9, "input", False),
        # The host waits for data while the device still has work.
        ({"data": 0.6}, 0.0, 0.0, "compute", True),
        # The host waits for results of a busy device: nothing is lost.
        ({"sync": 0.95}, 0.0, 0.5, "compute", True),
        ({"sync": 0.5}, 0.0, 0.6, "sync", False),
        ({"h2d": 0.4}, 0.0, 0.9, "transfer", False),
        # A slow host that also waits for data now and then.
        ({"data": 0.2}, 0.2, 1.0, "host", False),
        ({"backward": 0.5}, 0.0, 1.0, "host", False),
        ({"eval": 0.3, "checkpoint": 0.2}, 0.0, 0.0, "cadence", False),
        ({"logging": 0.3, "data": 0.3}, 0.3, 0.0, "balanced", False),
        ({"data": 0.08}, 0.08, 0.0, "compute", True),
        ({"data": 0.3}, None, None, "input", False),
        ({"sync": 0.9}, None, None, "compute", True),
    ],
)
def test_on_a_gpu(shares: dict[str, float], starved: float, drained: float, bound: str, healthy: bool) -> None:
    result = judge_bound(phases(**shares), STEP_MS, GpuUse(starved_share=starved, drained_share=drained), on_gpu=True)

    assert (result.bound, result.healthy) == (bound, healthy)


@pytest.mark.parametrize(
    ("shares", "bound", "healthy"),
    [
        ({}, "compute", True),
        ({"data": 0.9}, "input", False),
        ({"other": 0.5}, "host", False),
        ({"logging": 0.2}, "cadence", False),
        ({"data": 0.04, "other": 0.04}, "compute", True),
    ],
)
def test_without_a_gpu_the_cpu_computes(shares: dict[str, float], bound: str, healthy: bool) -> None:
    result = judge_bound(phases(**shares), STEP_MS, None, on_gpu=False)

    assert (result.bound, result.healthy) == (bound, healthy)
    assert "GPU" not in english(result.sentence)


def test_the_sentence_has_the_figures() -> None:
    gpu = GpuUse(starved_share=0.5, drained_share=0.0)

    assert english(judge_bound(phases(data=0.5), STEP_MS, gpu, True).sentence) == (
        "The GPU waits for data for 50% of each step (25 of 50 ms)."
    )
    assert english(judge_bound(phases(), STEP_MS, None, False).sentence) == (
        "The CPU computes for 100% of each 50 ms step; nothing worth fixing."
    )


def test_utilisation_alone_decides_nothing() -> None:
    idle = GpuUse(starved_share=0.0, drained_share=0.0, util_mean=3.0)

    assert judge_bound(phases(), STEP_MS, idle, True) == judge_bound(
        phases(), STEP_MS, GpuUse(0.0, drained_share=0.0), True
    )


def test_a_wait_between_two_looks_is_seen_by_how_long_no_kernel_ran() -> None:
    busy = GpuUse(drained_share=0.0, busy_share=0.99)
    idle = GpuUse(drained_share=0.0, busy_share=0.7)

    assert judge_bound(phases(sync=0.5), STEP_MS, busy, True).bound == "compute"
    assert removable(phases(sync=0.5), idle, True).sync == pytest.approx(0.3)
    assert removable(phases(h2d=0.1, sync=0.5), idle, True).transfer == pytest.approx(0.1)
    assert removable(phases(), idle, True).compute == 1.0  # nothing is there that it could be


def test_launches_cost_no_more_than_the_device_idles() -> None:
    """Found empty after every wait, it computes all the same."""
    shares = phases(eval=0.1, forward=0.3, backward=0.45)

    assert removable(shares, GpuUse(drained_share=0.8), True).host > 0.5
    assert removable(shares, GpuUse(drained_share=0.8, busy_share=0.75), True).host == pytest.approx(0.15)


def test_a_run_that_computes_a_tenth_for_nothing_is_not_called_healthy() -> None:
    healthy = judge_bound(phases(), STEP_MS, None, on_gpu=False)

    assert with_needless(healthy, 0.09 * STEP_MS, STEP_MS).healthy
    assert not with_needless(healthy, 0.1 * STEP_MS, STEP_MS).healthy


def test_a_run_without_steps_is_not_called_healthy() -> None:
    result = judge_bound(phases(), None, None, False)

    assert not result.healthy and "No training step" in english(result.sentence)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=len(PHASES), max_size=len(PHASES)).filter(lambda v: sum(v) > 0.1),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
def test_costs_are_shares(
    weights: list[float], starved: float | None, drained: float | None, busy: float | None, on_gpu: bool
) -> None:
    total = sum(weights)
    shares = {name: PhaseShare(w / total, w) for name, w in zip(PHASES, weights, strict=True)}

    costs = removable(shares, GpuUse(starved_share=starved, drained_share=drained, busy_share=busy), on_gpu)

    assert all(-1e-9 <= share <= 1 + 1e-9 for _, share in costs.ranked())
    assert 0 <= costs.compute <= 1


def states(evidence: Evidence) -> dict[str, str]:
    return {english(check.asked): check.state for check in make_checklist(evidence)}


def test_a_healthy_run_misses_nothing() -> None:
    found = states(run(gpu=on_gpu(), environment={"memory_bytes": 64 << 30}))

    assert "missed" not in found.values()
    assert found["utilisation of 85% or more"] == "met"
    assert found["host memory below 85% of what there is"] == "met"


def test_a_starved_run_misses_what_it_does_not_meet() -> None:
    found = states(
        run(gpu=on_gpu(starved_share=0.6, util_mean=40.0, util_spread=30.0), ms={"data": 60.0, "forward": 40.0})
    )

    assert found["the GPU starves for less than 5% of a step"] == "missed"
    assert found["utilisation steady within 10 points"] == "missed"
    assert found["the wait for a batch is short (10 ms, or 5%)"] == "missed"


def test_without_a_gpu_its_checks_are_not_measured_and_never_zero() -> None:
    checks = {english(check.asked): check for check in make_checklist(run())}

    for asked in ("the GPU starves for less than 5% of a step", "GPU memory below 95%", "waiting for results below 5%"):
        assert checks[asked].state == "not measured" and english(checks[asked].figure) == "–"


def test_swapping_during_the_run_is_seen_and_before_it_is_not() -> None:
    before = Series((0.0, 1.0), (4e9, 4e9))
    during = Series((0.0, 1.0), (0.0, 4e9))

    assert states(run(series={"swap_used_bytes": before}))["no swapping"] == "met"
    assert states(run(series={"swap_used_bytes": during}))["no swapping"] == "missed"


def test_it_is_shown_by_groups_with_marks() -> None:
    checks = (
        Check("resources", verbatim("no swapping"), "met", verbatim("0.00 GiB more")),
        Check("the run", verbatim("ended"), "missed", verbatim("±1")),
    )

    assert render_checklist(checks) == " Resources\n   ✓ no swapping  0.00 GiB more\n\n The run\n   ✗ ended        ±1\n"
    assert "x no swapping" in render_checklist(checks, unicode=False) and "±" not in render_checklist(
        checks, unicode=False
    )
