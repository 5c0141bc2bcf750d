"""Batches of torch's own workers come in memory that is new each time; those of flatout's do not."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.common.corpus import CORPUS
from flatout.launch.environment import fresh_memory_ms
from tests.integration.watching import Watch, Watched

_SCRIPT = str(CORPUS / "in117_frames.py")
_MIB = 4 * 2 * 768 * 1024 * 4 / 2**20


def _findings(seen: Watched) -> list[dict[str, Any]]:
    assert seen.returncode == 0, seen.stderr
    return [one for one in seen.json["findings"] if one["code"] == "IN117"]


def test_what_fresh_memory_costs_here_is_measured() -> None:
    known = fresh_memory_ms()

    assert known is not None and all(0.001 < ms < 10.0 for ms in known.values())


@pytest.mark.timing
def test_large_batches_of_torchs_workers_are_found(watch: Watch) -> None:
    (finding,) = _findings(watch(_SCRIPT, "--steps", "120"))

    # The labels are eight bytes each.
    assert finding["evidence"]["mib_per_step"] == pytest.approx(_MIB, rel=1e-3)
    # On a machine that others disturb, the interval begins at 1.
    assert finding["remedy"] == "loader.workers" and finding["predicted_gain"]["mid"] > 1.05


@pytest.mark.parametrize(
    ("words", "options"), [(("--fixed",), ()), ((), ("--remedy", "loader.workers=auto"))], ids=["in source", "outside"]
)
def test_memory_that_is_used_again_is_no_finding(
    watch: Watch, words: tuple[str, ...], options: tuple[str, ...]
) -> None:
    seen = watch(_SCRIPT, "--steps", "120", *words, options=options)

    assert not _findings(seen)
    (trained,) = seen.trainings
    assert not trained.values("batch")
