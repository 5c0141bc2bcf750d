"""Batches that are views of larger tensors: torch's workers send all of these."""

from __future__ import annotations

import pytest

from flatout.diagnose.findings import all_findings
from flatout.diagnose.summary import examine_run
from flatout.records.evidence import CarriedMemory
from flatout.records.report import Finding
from tests.integration.watching import Watch, Watched, line_of

_SCRIPT = "views.py"
_SHOWN, _WHOLE = 4096 * 4, 20_000_000


def _seen(seen: Watched) -> tuple[CarriedMemory, list[Finding]]:
    """Also findings that are withheld because the run's step time is uncertain by more than their gain."""
    assert seen.returncode == 0, seen.stderr
    evidence = examine_run(seen.stored)
    use = evidence.training_loader
    assert use is not None and use.carried is not None
    return use.carried, [finding for finding in all_findings(evidence) if finding.code == "IN120"]


@pytest.mark.timing
def test_windows_that_take_the_whole_recording_along_are_found(watch: Watch) -> None:
    carried, found = _seen(watch(_SCRIPT))

    assert (carried.shown_bytes, carried.carried_bytes) == (_SHOWN, _WHOLE)
    assert len(found) == 1 and found[0].location is not None
    assert found[0].location.line == line_of(_SCRIPT, "# handed out")


def test_copied_windows_take_nothing_along(watch: Watch) -> None:
    carried, found = _seen(watch(_SCRIPT, "--copies"))

    assert carried.shown_bytes == carried.carried_bytes == _SHOWN
    assert not found
