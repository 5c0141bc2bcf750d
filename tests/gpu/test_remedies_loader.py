"""Batches that are pinned and brought to the device from outside: there earlier, and the same."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu


def _options(*remedies: str) -> tuple[str, ...]:
    return tuple(word for remedy in remedies for word in ("--remedy", remedy))


def test_batches_are_on_the_device_before_they_are_asked_for(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("prefetch_cuda.py", "dict")

    seen = watch("prefetch_cuda.py", "dict", options=_options("transfer.prefetch=true"))

    assert seen.returncode == 0, seen.stderr
    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "applied", remedy
    assert remedy["live"] == {"device": "cuda:0", "tensors": 2}
    assert seen.truth["steps"] == bare.truth["steps"]
    assert seen.truth["there"] == seen.truth["steps"] - 3
    assert seen.losses == bare.losses


def test_a_script_that_works_on_its_batches_first_is_left_alone(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("prefetch_cuda.py", "host")

    seen = watch("prefetch_cuda.py", "host", options=_options("transfer.prefetch=true"))

    (remedy,) = seen.json["remedies"]
    assert remedy["state"] == "reverted" and "on the host" in remedy["why"]
    assert seen.truth["there"] == 0 and seen.losses == bare.losses


def test_batches_of_a_class_of_its_own_are_pinned(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("prefetch_cuda.py", "views")

    seen = watch("prefetch_cuda.py", "views", options=_options("loader.pin=true"))

    assert bare.truth["pinned"] == 0
    assert seen.truth["pinned"] == seen.truth["steps"]
    assert seen.losses == bare.losses
