"""What is gained by findings of the training thread, as the model of the step gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.problems.catalogue import find_problem
from flatout.records.evidence import Evidence
from flatout.records.ledger import Ledger, LedgerEntry, Nature, Part
from flatout.records.report import Finding, Gain, Location
from tests.cases.evidence import UNHEALTHY, live_state, run

MS = {"forward": 60.0, "backward": 30.0, "optimizer": 10.0}


def entry(line: int, ms: float, part: Part, nature: Nature) -> LedgerEntry:
    return LedgerEntry(Location("train.py", line), "note", "forward", nature, False, ms, ms / 100, 5 * ms, part)


def noted(*entries: LedgerEntry) -> Evidence:
    shares: dict[Part, float] = {}
    for each in entries:
        shares[each.part] = shares.get(each.part, 0.0) + each.share
    return run(ms=MS, loaders=(), verdict=UNHEALTHY, ledger=Ledger(entries, shares))


def only(code: str, evidence: Evidence) -> Finding:
    (found,) = find_problem(code).found_in_run(evidence)
    return found


def gain(found: Finding) -> Gain:
    assert found.predicted_gain is not None
    return found.predicted_gain


def test_what_a_waiting_line_does_besides_goes_with_its_wait() -> None:
    alone = gain(only("SY305", noted(entry(3, 20.0, "waiting", "pipe"))))
    starting = gain(only("SY305", noted(entry(3, 20.0, "waiting", "pipe"), entry(3, 10.0, "python", "python"))))

    assert starting.mid > 1.1 * alone.mid
    assert list(find_problem("HO411").found_in_run(noted(entry(3, 20.0, "waiting", "pipe")))) == []


@pytest.mark.parametrize(("nature", "least_ms"), [("pipe", 90.0), ("lock", 90.0), ("process", 90.0), ("sleep", 0.0)])
def test_a_wait_for_others_of_the_script_leaves_their_work(nature: Nature, least_ms: float) -> None:
    """No step is quicker than what the process needs that it waits for; a timer ends without anybody's work."""
    evidence = noted(entry(3, 60.0, "waiting", nature))
    beside = replace(evidence, beside_share=0.9)

    assert gain(only("SY305", evidence)).mid > 2
    assert gain(only("SY305", beside)).mid == pytest.approx(
        100 / least_ms if least_ms else gain(only("SY305", evidence)).mid, rel=0.01
    )


def test_a_short_wait_of_a_working_line_goes_with_its_work() -> None:
    evidence = noted(entry(3, 5.0, "waiting", "lock"), entry(3, 20.0, "python", "python"))

    assert gain(only("HO411", evidence)).mid == pytest.approx(100 / 75, rel=0.03)
    assert list(find_problem("SY305").found_in_run(evidence)) == []


@pytest.mark.parametrize(("state", "saved_ms"), [({"anomaly_ms": 25.0}, 40.0), ({}, 18.0)])
def test_tracing_costs_what_an_operation_was_timed_to_take(state: dict[str, float], saved_ms: float) -> None:
    live = live_state(anomaly_mode=True, anomaly_operations=200, **state)
    found = gain(only("HO405", run(ms=MS, loaders=(), live=live)))

    assert found.mid == pytest.approx(100 / (100 - saved_ms))
    assert found.low < found.mid < found.high < 4.0
