"""The ledger: what a part of the step is spent on."""

from __future__ import annotations

import pytest

from flatout.attach import wire
from flatout.diagnose.ledger import _lines_of_losses, make_ledger
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import OpCost
from flatout.records.ledger import CallPath, LedgerEntry
from flatout.records.report import Location
from tests.unit.making import Making, body

SHARES = {"forward": 0.4, "backward": 0.3, "optimizer": 0.1, "other": 0.2}


def test_a_wait_stays_one_where_a_look_fell_into_a_pass(making: Making) -> None:
    process = making.process()
    for _ in range(50):
        process.step(10.0, SHARES)
    process.end()
    lines = making.lines()
    for number in range(3):
        lines.text("line", {"id": number, "file": "train.py", "line": number + 1, "function": "main"})
    lines.append(body("line", 0, wire.FORWARD, 40, 0.4, wire.NATIVE, 1, 0))
    lines.append(body("line", 1, wire.BACKWARD, 30, 0.3, wire.NATIVE, 0, 0))
    lines.append(body("line", 1, wire.OTHER, 2, 0.02, wire.PYTHON, 0, 0))
    lines.append(body("line", 2, wire.OTHER, 18, 0.18, wire.SLEEP, 0, 0))
    lines.append(body("line", 2, wire.OPTIMIZER, 1, 0.01, wire.PYTHON, 0, 0))
    run = making.stored()

    ledger = make_ledger(training_ranks(run), summarise_run(run).phases)

    assert sum(ledger.shares.values()) == pytest.approx(1.0)
    assert ledger.shares["waiting"] == pytest.approx(0.18)
    # Line 2 is that of backward, also just after it.
    assert ledger.shares["model"] == pytest.approx(0.72) and "python" not in ledger.shares


@pytest.mark.parametrize(("data", "other"), [(0.0, 0.3), (0.1, 0.2)])
def test_with_a_loader_each_phase_is_shared_out_by_its_own_looks(making: Making, data: float, other: float) -> None:
    process = making.process()
    for _ in range(50):
        process.step(10.0, {"data": data, "forward": 0.4 - data, "backward": 0.4, "other": 0.2})
    process.end()
    lines = making.lines()
    for number in range(3):
        lines.text("line", {"id": number, "file": "train.py", "line": number + 1, "function": "main"})
    lines.append(body("line", 0, wire.FORWARD, 30, 0.3, wire.NATIVE, 1, 0))
    lines.append(body("line", 1, wire.OTHER, 30, 0.3, wire.PYTHON, 0, 0))
    lines.append(body("line", 2, wire.DATA, 10, 0.1, wire.PYTHON, 0, 0))
    run = making.stored()

    ledger = make_ledger(training_ranks(run), summarise_run(run).phases)

    assert ledger.shares["python"] == pytest.approx(other)


def test_what_a_loss_calls_belongs_to_it_and_what_the_loop_calls_does_not() -> None:
    """main:1 calls loss:10, which makes graph and calls plan:20; main:2 calls metric:30."""

    def at(number: int) -> Location:
        return Location("train.py", number)

    def entry(number: int, function: str, phase: str) -> LedgerEntry:
        return LedgerEntry(at(number), function, phase, "native", False, 10.0, 0.1, 20.0, "native")

    def path(numbers: tuple[int, ...], functions: tuple[str, ...]) -> CallPath:
        return CallPath(tuple(map(at, numbers)), functions, "forward", 10.0, 20.0)

    entries = [entry(20, "plan", "forward"), entry(30, "metric", "forward"), entry(3, "main", "backward")]
    costs = [OpCost(at(11), "loss", False, 1.0, 1.0, 2.0, 5.0), OpCost(at(1), "main", True, 1.0, 1.0, 2.0, 5.0)]
    paths = [path((1, 10, 20), ("main", "loss", "plan")), path((2, 30), ("main", "metric"))]

    assert _lines_of_losses(entries, costs, paths) == {at(20)}
    # Mostly called by the loop itself.
    more = [*paths, path((2, 20), ("main", "plan")), path((4, 20), ("main", "plan"))]
    assert _lines_of_losses(entries, costs, more) == frozenset()
