"""Times that a step takes of itself: which lie within one turn, and what is between the readings."""

from __future__ import annotations

import ast

import pytest

from flatout.problems.measuring.clocks import find_intervals
from flatout.source.code import Code
from flatout.source.project.loading import load_texts

_LOOP = """
import datetime
import time
from time import perf_counter
from timeit import default_timer as timer

end = time.time()
for x in loader:
    {}
    model(x).backward()
    optimizer.step()
    end = time.time()
"""


def between(*lines: str) -> list[tuple[str, list[str]]]:
    """What each interval is called, and the names that are called inside it."""
    code = Code(load_texts({"train.py": _LOOP.format("\n    ".join(lines))}))
    (region,) = [known for known in code.training.regions if known.loop is not None]
    return [
        (interval.name, [ast.unparse(node.func) for node in interval.inside if isinstance(node, ast.Call)])
        for interval in find_intervals(region)
    ]


@pytest.mark.parametrize(
    "clock", ["time.time()", "perf_counter()", "timer()", "datetime.datetime.now()", "time.monotonic()"]
)
def test_any_clock_will_do(clock: str) -> None:
    assert between(f"t = {clock}", "f()", f"took = {clock} - t") == [("took", ["f"])]


def test_a_difference_of_kept_readings_ends_where_the_second_is_read() -> None:
    assert between("a = timer()", "f()", "b = timer()", "g()", "took = b - a") == [("took", ["f"])]


def test_what_the_difference_is_called() -> None:
    assert between("t = timer()", 'meters["data"] += timer() - t')[0][0] == "meters data"
    assert between("t = timer()", "self.data_time.update(timer() - t)")[0][0] == "self.data_time"
    assert between("t = timer()", 'log({"data": timer() - t, "x": 1})')[0][0] == "data"
    assert between("t = timer()", "log(data=timer() - t)")[0][0] == "data"
    assert between("t = timer()", 'add_scalar("time/data", timer() - t)') != []


@pytest.mark.parametrize(
    "lines",
    [
        ("took = time.time() - end",),  # began in the turn before
        ("t = timer()", "t = 3", "took = timer() - t"),
        ("t = timer()", "if timer() - t > 60:", "    f()"),
        ("if x:", "    t = timer()", "took = timer() - t"),
        ("t = timer()", "for y in x:", "    took = timer() - t"),
        ("t = clock()", "took = clock() - t"),
    ],
)
def test_what_is_no_interval_of_one_turn(lines: tuple[str, ...]) -> None:
    assert between(*lines) == []


def test_one_that_is_looked_at_seldom_counts() -> None:
    assert between("t = timer()", "f()", "if step % 10 == 0:", "    took = timer() - t") == [("took", ["f"])]
