"""Steps of a millisecond or two: most are only counted, and nothing is lost or counted twice."""

from __future__ import annotations

import pytest

from tests.integration.watching import Watch, line_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("mode", ["plain", "waits", "scaler", "loaderless"])
def test_every_step_counts_once(watch: Watch, mode: str) -> None:
    seen = watch("short_steps_cuda.py", mode)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]
    # All of the time is some phase's.
    step_ms = sum(phase["ms"] for phase in seen.json["phases"].values())
    assert step_ms == pytest.approx(1e3 * seen.truth["seconds"] / seen.truth["steps"], rel=0.15)
    if mode != "loaderless":
        assert seen.json["throughput"]["samples_per_s"] == pytest.approx(
            16 * seen.json["throughput"]["steps_per_s"], rel=0.01
        )


def test_waits_and_copies_are_all_counted(watch: Watch) -> None:
    seen = watch("short_steps_cuda.py", "waits")

    (wait,) = [site for site in seen.json["syncs"] if site["op"] == "item"]
    assert wait["location"]["line"] == line_of("short_steps_cuda.py", "# SITE item")
    assert wait["per_step"] == pytest.approx(1, abs=0.02)
    line = line_of("short_steps_cuda.py", "# SITE copy")
    copied = [site["per_step"] for site in seen.json["copies"] if site["location"]["line"] == line]
    assert sum(copied) == pytest.approx(2, abs=0.05)
    assert seen.share("sync") > 0 and seen.share("h2d") > 0


@pytest.mark.parametrize("mode", ["plain", "loaderless"])
def test_samples_of_the_device_stay_within_a_step(watch: Watch, mode: str) -> None:
    seen = watch("short_steps_cuda.py", mode)

    step_ms = 1e3 / seen.json["throughput"]["steps_per_s"]
    assert seen.json["gpu"]["device_ms"]["step"] == pytest.approx(step_ms, rel=0.25)


def test_watching_says_that_it_takes_little(watch: Watch) -> None:
    assert watch("short_steps_cuda.py", "plain").json["overhead"]["share"] < 0.015
