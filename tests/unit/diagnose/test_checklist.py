"""The checklist: what is met, what is missed, and what nobody could measure."""

from __future__ import annotations

from flatout.diagnose.verdict import make_checklist
from flatout.records.evidence import Evidence, Series
from flatout.records.message import verbatim
from flatout.records.report import Check
from flatout.report.terminal import render_checklist
from flatout.words import english
from tests.cases.evidence import on_gpu, run


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
