"""Steps and samples are found in every usual way of writing a training loop."""

from __future__ import annotations

import pytest

from tests.integration.watching import Watch, Watched, assert_phases_tile

pytestmark = pytest.mark.durations

LOOPS = [
    "epoch_loop.py",
    "accumulation.py",
    "gan.py",
    "lbfgs.py",
    "amp.py",
    "background.py",
    *(
        pytest.param(name, marks=pytest.mark.variant)
        for name in ("next_loop.py", "trainer_class.py", "slicing.py", "iterable.py", "rl.py")
    ),
]
SHAPES = ["tensor", "dict", "tuple", "namedtuple", "nested", "strings", "dataclass", "slots", "custom", "encoding"]


@pytest.mark.parametrize("script", LOOPS)
def test_counts_every_step_and_sample(watch_once: Watch, script: str) -> None:
    seen = watch_once(script)

    truth = seen.truth
    assert seen.returncode == 0
    assert seen.json["run"]["steps"] == truth["steps"]
    assert seen.step_count == truth["steps"]
    assert seen.samples == truth["samples"]
    throughput = seen.json["throughput"]
    batch = throughput["samples_per_s"] / throughput["steps_per_s"]
    assert batch == pytest.approx(truth["samples"] / truth["steps"], rel=0.15)
    assert_phases_tile(seen.steps)


@pytest.fixture(scope="module")
def shapes(watch: Watch) -> Watched:
    return watch("batches.py")


@pytest.mark.parametrize("shape", SHAPES)
def test_finds_the_size_of_any_batch(shapes: Watched, shape: str) -> None:
    assert shapes.truth["shapes"] == SHAPES
    per_shape = shapes.truth["steps"] // len(SHAPES)
    first = SHAPES.index(shape) * per_shape

    samples = shapes.steps["samples"][first : first + per_shape]

    assert samples.tolist() == [8, 8, 8, 8, 8, 8, 4]


def test_a_skipped_step_is_a_step_and_marked(watch_once: Watch) -> None:
    seen = watch_once("amp.py")

    skipped = [i for i, flags in enumerate(seen.steps["flags"]) if flags & 1]

    assert skipped == [4, 11]


def test_micro_batches_are_counted_in_their_step(watch_once: Watch) -> None:
    steps = watch_once("accumulation.py").steps

    assert steps["batches"].tolist() == [4] * 20
    assert steps["backwards"].tolist() == [4] * 20
    assert steps["samples"].tolist() == [16] * 20
