"""How much of backward a loop is taken to be."""

from __future__ import annotations

import dataclasses

import pytest

from flatout.problems.host.python_loop import in_run
from flatout.records.evidence import Evidence, OpCost
from flatout.records.report import LineCost, Location
from tests.cases.evidence import run

FORWARD = """\
def forward(self, x):
    x = self.first(x)
    rows = []
    for i in range(len(x)):
        rows.append(torch.tanh(x[i]))
    return self.last(torch.stack(rows))
"""
LINES = tuple(
    LineCost(Location("train.py", number), "forward", "forward", ms / 100, ms) for number, ms in ((5, 20.0), (2, 5.0))
)


def loop_run(*ops: OpCost) -> Evidence:
    evidence = run(ms={"forward": 30.0, "backward": 60.0}, all_lines=LINES, files={"train.py": FORWARD})
    return dataclasses.replace(evidence, op_costs=ops)


def op(line: int, backward_ms: float) -> OpCost:
    return OpCost(Location("train.py", line), "forward", True, 1.0, 5.0, backward_ms, 10.0)


def backward_ms(evidence: Evidence) -> float:
    (found,) = in_run(evidence)
    return float(found.evidence["loop_backward_ms_per_step"])  # type: ignore[arg-type]


def test_backward_of_the_loops_lines_is_what_a_window_saw() -> None:
    assert backward_ms(loop_run(op(2, 8.0), op(5, 47.0), op(6, 5.0))) == pytest.approx(47.0)


def test_without_a_window_it_is_estimated() -> None:
    assert backward_ms(loop_run()) == pytest.approx(40.0)
