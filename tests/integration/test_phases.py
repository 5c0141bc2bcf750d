"""Time is booked where it was spent: known costs are planted, and the script's own clock is the judge."""

from __future__ import annotations

import pytest

from flatout.attach.wire import BACKWARD, EVAL, FORWARD, OTHER
from tests.integration.watching import Watch, Watched, assert_phases_tile, line_of

pytestmark = pytest.mark.timing

PLANTED = {
    "data": "data",
    "forward": "forward",
    "other": "other",
    "checkpoint": "checkpoint",
    "tensorboard": "logging",
    "image": "logging",
    "gc": "gc",
}
WITH_LINE = {"data", "forward", "other", "tensorboard", "image"}


@pytest.fixture(scope="module")
def mixed(watch: Watch) -> Watched:
    return watch("mixed.py")


def test_phases_add_up_to_the_wall_time_measured_outside(mixed: Watched) -> None:
    steps, truth = mixed.steps, mixed.truth
    assert_phases_tile(steps)
    measured_s = (truth["end_ns"] - truth["first_end_ns"]) * 1e-9
    assert float(steps["phase_s"][1:].astype(float).sum()) == pytest.approx(measured_s, rel=0.01)
    # The first step begins with the loop, not with the import of torch.
    begin = int(steps["start_ns"][0])
    assert abs(begin - truth["begin_ns"]) * 1e-9 < 0.01 * (truth["end_ns"] - truth["begin_ns"]) * 1e-9


def test_reported_phases_add_up_to_the_step(mixed: Watched) -> None:
    shares = {name: phase["share"] for name, phase in mixed.json["phases"].items()}
    total_ms = sum(phase["ms"] for phase in mixed.json["phases"].values())
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    assert total_ms == pytest.approx(1000 / mixed.json["throughput"]["steps_per_s"], rel=0.02)
    for name in ("data", "forward", "backward", "optimizer", "eval", "checkpoint", "gc", "other"):
        assert shares[name] > 0, name


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=[pytest.mark.variant] if kind in ("other", "image", "gc") else []) for kind in PLANTED
    ],
)
def planted(request: pytest.FixtureRequest, watch: Watch) -> tuple[str, Watched]:
    return request.param, watch("planted.py", request.param)


def test_a_planted_cost_is_found_in_its_phase(planted: tuple[str, Watched]) -> None:
    kind, seen = planted

    assert seen.returncode == 0, seen.stderr
    # TensorBoard writes from a thread of its own, which takes the interpreter from the script between its calls too.
    tolerance = 0.4 if kind == "tensorboard" else 0.15
    assert seen.share(PLANTED[kind]) == pytest.approx(seen.truth["planted_share"], rel=tolerance)
    assert_phases_tile(seen.steps)


def test_a_planted_cost_is_found_in_its_line(planted: tuple[str, Watched]) -> None:
    kind, seen = planted
    if kind not in WITH_LINE:
        # The garbage collector and a checkpoint are found by their own call, not by where the sampler saw the script.
        assert kind == "gc" or any(site["op"] == kind for site in seen.json["pauses"])
        return
    lines = [line for line in seen.json["lines"] if line["phase"] == PLANTED[kind]]

    assert lines, "no look at the script fell within that phase"
    top = max(lines, key=lambda line: line["share"])
    assert top["location"]["file"].endswith("planted.py")
    assert top["location"]["line"] == line_of("planted.py", f"# PLANTED {kind}")
    assert top["share"] == pytest.approx(seen.truth["planted_share"], rel=0.5)


@pytest.mark.parametrize(
    "style",
    ["around", "inside", *(pytest.param(style, marks=pytest.mark.variant) for style in ("decorated", "inference"))],
)
def test_an_evaluation_is_found_in_every_style(watch: Watch, style: str) -> None:
    seen = watch("evaluation.py", style)

    assert seen.step_count == seen.truth["steps"]
    assert seen.samples == seen.truth["samples"], "samples of an evaluation are not training samples"
    assert seen.share("eval") == pytest.approx(seen.truth["planted_share"], rel=0.15)


@pytest.mark.parametrize("style", ["no_grad", "plain"])
def test_an_evaluation_is_found_when_loaders_are_made_anew(watch: Watch, style: str) -> None:
    seen = watch("fresh_loaders.py", style)

    assert seen.step_count == seen.truth["steps"]
    assert seen.samples == seen.truth["samples"]
    assert seen.share("eval") == pytest.approx(seen.truth["planted_share"], rel=0.15)


def test_a_clean_loop_has_nothing_in_the_carved_phases(watch: Watch) -> None:
    seen = watch("planted.py", "nothing")

    for name in ("h2d", "sync", "eval", "checkpoint", "logging"):
        assert seen.share(name) == 0, name


def test_steps_too_short_to_be_looked_at_one_by_one_are_still_counted(watch: Watch) -> None:
    seen = watch("short_steps.py")

    steps, truth = seen.steps, seen.truth
    assert seen.step_count == truth["steps"] and seen.samples == truth["samples"]
    assert len(steps) < truth["steps"]  # or they were looked at one by one after all
    assert_phases_tile(steps)
    phase_s = steps["phase_s"].astype(float).sum(axis=0)
    # Until training resumes, all is part of the evaluation. The last one comes after the last step.
    assert phase_s[EVAL] == pytest.approx((truth["evaluating_s"] + truth["pausing_s"]) * 7 / 8, rel=0.1)
    assert phase_s[OTHER] < phase_s[FORWARD] + phase_s[BACKWARD]
