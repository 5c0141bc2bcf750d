"""The knobs of the loader, turned from outside: the same samples, the same losses, bit for bit."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch, assert_phases_tile


def _options(*remedies: str) -> tuple[str, ...]:
    return tuple(word for remedy in remedies for word in ("--remedy", remedy))


@pytest.mark.parametrize(
    "remedies",
    [
        pytest.param(("loader.workers=2",), marks=pytest.mark.variant),
        ("loader.workers=2", "loader.persistent=true", "loader.prefetch=3"),
    ],
)
def test_order_and_losses_stay_the_same(watch: Watch, run_bare: Run, remedies: tuple[str, ...]) -> None:
    bare = run_bare("loader_order.py")

    seen = watch("loader_order.py", options=_options(*remedies))

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["workers"] >= 1 and bare.truth["workers"] == 0
    assert seen.losses == bare.losses
    assert seen.truth["seen"] == bare.truth["seen"] and seen.truth["after"] == bare.truth["after"]
    states = {one["id"]: one for one in seen.json["remedies"]}
    assert {one["state"] for one in states.values()} == {"applied"}
    live = states["loader.workers"]["live"]
    assert any(key.startswith("loader_order.py:") and "num_workers 0" in str(live[key]) for key in live)
    assert live["randomness"] == "samples draw no random numbers"
    assert seen.json["live"]["loaders"][0]["num_workers"] == seen.truth["workers"]


@pytest.mark.durations
def test_workers_that_come_while_it_runs_are_watched_as_any(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("loader_order.py", "slow")

    seen = watch("loader_order.py", "slow", options=_options("loader.workers=auto"))

    assert seen.losses == bare.losses
    assert seen.truth["seen"] == bare.truth["seen"] and seen.truth["after"] == bare.truth["after"]
    (loader,), (cost,) = seen.json["live"]["loaders"], seen.json["workers"]
    assert loader["num_workers"] == seen.truth["workers"] >= 2 and loader["persistent_workers"]
    # A worker that came last may not have finished a sample.
    assert cost["loader"] == loader["id"] and 2 <= cost["workers"] <= seen.truth["workers"]
    # Several workers start at once here, and what their first samples take is theirs.
    assert 4.0 <= cost["fetch_ms_per_sample"] < 16.0
    # How much of it is in the steady part depends on when the workers were there.
    assert seen.share("data") > 0
    assert_phases_tile(seen.steps)


@pytest.mark.variant
def test_samples_that_draw_are_told_of(watch: Watch) -> None:
    seen = watch("loader_order.py", "random", options=_options("loader.workers=2"))

    (remedy,) = seen.json["remedies"]
    assert "not the same random numbers" in remedy["live"]["randomness"]


def test_a_stream_that_is_not_sharded_is_left_alone(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("loader_order.py", "stream")

    seen = watch("loader_order.py", "stream", options=_options("loader.workers=2", "loader.persistent=true"))

    assert seen.truth == bare.truth and seen.losses == bare.losses
    told = " ".join(str(value) for one in seen.json["remedies"] for value in one["live"].values())
    assert "left alone: an IterableDataset that is not sharded" in told
