"""Batches of torch's own workers come in memory that is new each time; those of flatout's do not."""

from __future__ import annotations

import pytest

from benchmarks.common.corpus import CORPUS
from flatout.diagnose.findings import all_findings
from flatout.diagnose.summary import examine_run
from flatout.launch.environment import fresh_memory_ms
from flatout.model.prediction import can_promise
from flatout.records.evidence import Evidence
from flatout.records.report import Finding
from tests.integration.watching import Watch, Watched

_SCRIPT = "large_batches.py"
_MIB = 4 * 2 * 768 * 1024 * 4 / 2**20


def _findings(seen: Watched) -> tuple[Evidence, list[Finding]]:
    """Also those that are withheld because the run's step time is uncertain by more than their gain."""
    assert seen.returncode == 0, seen.stderr
    evidence = examine_run(seen.stored)
    return evidence, [finding for finding in all_findings(evidence) if finding.code == "IN117"]


def test_what_fresh_memory_costs_here_is_measured() -> None:
    known = fresh_memory_ms()

    assert known is not None and all(0.001 < ms < 10.0 for ms in known.values())


@pytest.mark.timing
def test_large_batches_of_torchs_workers_are_found(watch: Watch) -> None:
    seen = watch(_SCRIPT)

    evidence, found = _findings(seen)
    assert len(found) == 1, seen.notices
    # The labels are eight bytes each.
    assert found[0].evidence["mib_per_step"] == pytest.approx(_MIB, rel=1e-3)
    assert found[0].remedy == "loader.workers"
    # Beside others the interval begins at 1, or the model does not give the step and promises nothing.
    gain = found[0].predicted_gain
    assert (gain is not None and gain.mid > 1.05) or not can_promise(evidence)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((str(CORPUS / "in117_frames.py"), "--steps", "120", "--fixed"), ()),
        ((_SCRIPT,), ("--remedy", "loader.workers=auto")),
    ],
    ids=["in source", "outside"],
)
def test_memory_that_is_used_again_is_no_finding(
    watch: Watch, words: tuple[str, ...], options: tuple[str, ...]
) -> None:
    seen = watch(*words, options=options)

    assert not _findings(seen)[1]
    (trained,) = seen.trainings
    assert not trained.values("batch")
