"""Device time from pooled events: starvation, lead and the phases' own milliseconds, against known truth."""

from __future__ import annotations

import pytest

from tests.integration.watching import Watch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("share", "mode"),
    [
        ("0", "sync"),
        ("0.25", "sync"),
        ("0.5", "sync"),
        ("0.75", "sync"),
        ("0", "async"),
        ("0.25", "async"),
        ("0.75", "async"),
    ],
)
def test_starved_share_is_within_three_points_of_the_truth(watch: Watch, share: str, mode: str) -> None:
    seen = watch("starved.py", share, mode)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]
    assert seen.truth["idle_share"] == pytest.approx(float(share), abs=0.05), "the script planted what it should"
    assert seen.json["gpu"]["starved_share"] == pytest.approx(seen.truth["idle_share"], abs=0.03)


def test_device_milliseconds_of_each_phase(watch: Watch) -> None:
    seen = watch("device_phases.py")

    device_ms = seen.json["gpu"]["device_ms"]
    for phase in ("forward", "backward", "optimizer"):
        assert device_ms[phase] == pytest.approx(seen.truth[phase], rel=0.1, abs=0.3), phase
    assert device_ms["step"] == pytest.approx(18.0, rel=0.1)


def test_a_device_with_work_queued_is_not_drained(watch: Watch) -> None:
    seen = watch("device_phases.py")

    assert seen.json["gpu"]["drained_share"] < 0.2


def test_a_device_that_waits_for_a_slow_host_is_drained(watch: Watch) -> None:
    seen = watch("device_phases.py", "host")

    assert seen.json["gpu"]["drained_share"] > 0.5
