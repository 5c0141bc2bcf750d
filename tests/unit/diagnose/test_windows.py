"""What windows say of lines, brought to an ordinary step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.ranks import Rank, training_ranks
from flatout.diagnose.windows import (
    backward_again,
    growing_calls,
    needless_calls,
    op_costs,
    picked_parts,
    picked_tables,
)
from flatout.records.evidence import OpCost
from flatout.records.report import Location, PhaseShare
from tests.unit.making import Making

PHASES = {"forward": PhaseShare(0.25, 10.0), "backward": PhaseShare(0.75, 30.0)}
SLOW, QUICK = ("/a/model.py", 7, "forward", True, 8), ("/a/train.py", 3, "main", False, 1)


def window(slow: tuple[float, float], quick: tuple[float, float], **more: Any) -> dict[str, Any]:
    lines = [[*SLOW, *slow, 16], [*QUICK, *quick, 1]]
    return {
        "index": 20,
        "forward_ms": slow[0] + quick[0],
        "backward_ms": slow[1] + quick[1],
        "lines": lines,
        **more,
    }


def record(folder: Path, *windows: dict[str, Any]) -> list[Rank]:
    making = Making(folder)
    process = making.process()
    process.steps(40)
    for value in windows:
        process.text("window", value)
    process.end()
    return training_ranks(making.stored())


def read(folder: Path, *windows: dict[str, Any]) -> dict[int, OpCost]:
    return {cost.location.line: cost for cost in op_costs(record(folder, *windows), PHASES)}


def test_times_are_brought_to_an_ordinary_step(tmp_path: Path) -> None:
    found = read(tmp_path, window((16.0, 45.0), (4.0, 15.0)))

    assert found[7].forward_ms == pytest.approx(8.0)
    assert found[7].backward_ms == pytest.approx(22.5)
    assert found[3].backward_ms == pytest.approx(7.5)
    assert (found[7].calls, found[7].backward_ops, found[7].in_module) == (8, 16, True)
    assert next(iter(found)) == 7, "the dearest first"


def test_a_disturbed_window_does_not_move_the_others(tmp_path: Path) -> None:
    calm, disturbed = window((8.0, 20.0), (2.0, 10.0)), window((8.0, 20.0), (2.0, 500.0))

    found = read(tmp_path, calm, disturbed, calm)

    assert found[7].backward_ms == pytest.approx(20.0)
    assert found[7].forward_ms + found[3].forward_ms == pytest.approx(10.0)


def test_time_of_no_line_stays_so(tmp_path: Path) -> None:
    """Nodes that were made before the window began."""
    found = read(tmp_path, window((8.0, 20.0), (2.0, 10.0), backward_ms=60.0))

    assert found[7].backward_ms == pytest.approx(10.0)
    assert found[3].backward_ms == pytest.approx(5.0)


def test_a_line_that_not_every_window_saw_is_a_mean(tmp_path: Path) -> None:
    both, rare = window((8.0, 30.0), (2.0, 0.0)), window((8.0, 30.0), (2.0, 0.0))
    rare["lines"] = rare["lines"][:1]

    found = read(tmp_path, both, rare)

    assert found[3].calls == 0.5
    assert found[7].backward_ms == pytest.approx(30.0)


def test_no_backward_is_not_measured(tmp_path: Path) -> None:
    found = read(tmp_path, window((8.0, 0.0), (2.0, 0.0)))

    assert found[7].backward_ms is None


def test_a_run_without_a_window_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == {}


def test_needless_calls_are_brought_to_an_ordinary_step_too(tmp_path: Path) -> None:
    repeat = {
        "kind": "repeat",
        "module": "Generator",
        "at": ["/a/train.py", 9, "step"],
        "first_at": ["/a/train.py", 8, "step"],
        "forward_ms": 2.0,
        "backward_ms": 6.0,
        "moves_state": True,
    }
    some = window((16.0, 45.0), (4.0, 15.0), calls=[repeat, repeat])
    none = window((16.0, 45.0), (4.0, 15.0))

    (found,) = needless_calls(record(tmp_path, some, none), PHASES)

    assert (found.kind, found.module, found.function, found.calls) == ("repeat", "Generator", "step", 1.0)
    assert (found.location, found.first_location) == (Location("/a/train.py", 9), Location("/a/train.py", 8))
    # 4 of 20 ms forward and 12 of 60 backward, in one window of two.
    assert found.forward_ms == pytest.approx(1.0)
    assert found.backward_ms == pytest.approx(3.0)
    assert found.moves_state and not found.is_random


def test_what_only_some_steps_do_counts_for_as_much_as_it_makes_them_longer(tmp_path: Path) -> None:
    """A rollout every third step: a window over one of these is of a step five times as long."""
    call = {"kind": "repeat", "module": "Composer", "at": ["/a/train.py", 9, "roll_out"], "forward_ms": 40.0}
    rare = window((8.0, 30.0), (2.0, 10.0), calls=[{**call, "backward_ms": 0.0}])
    rare["lines"].append(["/a/train.py", 9, "roll_out", False, 12, 40.0, 0.0, 0])
    rare["forward_ms"] = 50.0
    usual = window((8.0, 30.0), (2.0, 10.0))
    ranks = record(tmp_path, usual, rare, usual)
    phases = {"forward": PhaseShare(0.5, 70.0 / 3), "backward": PhaseShare(0.5, 40.0)}

    (found,) = needless_calls(ranks, phases)
    costs = {cost.location.line: cost for cost in op_costs(ranks, phases)}

    assert found.forward_ms == pytest.approx(40.0 / 3)
    assert costs[9].forward_ms == pytest.approx(40.0 / 3)


def test_what_is_dropped_is_a_call_and_one_of_no_line_is_left_out(tmp_path: Path) -> None:
    at = ["/a/train.py", 9, "step"]
    calls = [
        {"kind": "dropped", "module": "Generator", "at": at, "first_at": None, "forward_ms": 0.0, "backward_ms": 12.0},
        {"kind": "dropped", "module": "", "at": None, "first_at": None, "forward_ms": 0.0, "backward_ms": 12.0},
    ]

    (found,) = needless_calls(record(tmp_path, window((16.0, 45.0), (4.0, 15.0), calls=calls)), PHASES)

    assert (found.kind, found.module, found.location.line) == ("dropped", "Generator", 9)
    assert found.backward_ms == pytest.approx(6.0)


def test_windows_of_an_older_flatout_tell_of_no_calls(tmp_path: Path) -> None:
    assert needless_calls(record(tmp_path, window((16.0, 45.0), (4.0, 15.0))), PHASES) == ()


def test_passes_over_the_same_graph_are_brought_to_an_ordinary_step_too(tmp_path: Path) -> None:
    again = {"at": ["/a/train.py", 9, "step"], "passes": 3, "nodes": 90, "backward_ms": 40.0}

    (found,) = backward_again(record(tmp_path, window((16.0, 45.0), (4.0, 15.0), again=[again])), PHASES)

    assert (found.location, found.passes, found.nodes) == (Location("/a/train.py", 9), 3.0, 90.0)
    assert found.backward_ms == pytest.approx(20.0)


TABLE = {
    "at": ["/a/train.py", 3, "main"],
    "made_at": ["/a/model.py", 2],
    "elements": 1000,
    "picked": 10,
    "uses": 1,
    "bytes": 4000,
    "all_bytes": 5000,
    "backward_ms": 6.0,
    "optimizer": "torch.optim.adam.Adam",
}


def test_tables_of_which_rows_are_picked_are_means_over_the_windows(tmp_path: Path) -> None:
    # Two of the same line are two tables; without the line that made it, a table is told by that which picks.
    other = {**TABLE, "made_at": None, "bytes": 8000}
    windows = [
        window((16.0, 45.0), (4.0, 15.0), tables=[TABLE, TABLE, other]),
        window((16.0, 45.0), (4.0, 15.0), tables=[{**TABLE, "picked": 30, "backward_ms": 2.0}, TABLE]),
    ]

    picking, first, second = picked_tables(record(tmp_path, *windows), PHASES)

    assert (picking.location, first.location) == (Location("/a/train.py", 3), Location("/a/model.py", 2))
    assert (first.picked, second.picked, first.picked_share) == (20, 10, 0.02)
    assert first.backward_ms == pytest.approx(2.0)  # half of the milliseconds of a window
    assert picking.backward_ms == pytest.approx(1.5)  # in one window of two


def test_an_older_recording_tells_of_no_tables(tmp_path: Path) -> None:
    assert picked_tables(record(tmp_path, window((16.0, 45.0), (4.0, 15.0))), PHASES) == ()


GROWING = {
    "at": ["/a/train.py", 3, "main"],
    "module": "GRU",
    "sequences": 1,
    "calls": 8,
    "dimension": 1,
    "first_length": 1,
    "last_length": 8,
    "computed": 36,
    "needed": 8,
    "is_known": True,
    "forward_ms": 8.0,
    "backward_ms": 12.0,
    "fixed_ms": 0.4,
    "nodes": 50,
}


def test_inputs_that_grow_are_means_over_the_windows(tmp_path: Path) -> None:
    longer = {**GROWING, "calls": 10, "last_length": 10, "computed": 55, "needed": 10, "is_known": False}
    windows = [
        window((16.0, 45.0), (4.0, 15.0), growing=[GROWING]),
        window((16.0, 45.0), (4.0, 15.0), growing=[longer, {**GROWING, "at": None}]),
        window((16.0, 45.0), (4.0, 15.0)),
    ]

    (found,) = growing_calls(record(tmp_path, *windows), PHASES)

    assert (found.module, found.location, found.function) == ("GRU", Location("/a/train.py", 3), "main")
    assert (found.first_length, found.last_length, found.is_known) == (1, 10, False)
    assert (found.calls, found.computed, found.needed) == pytest.approx((6.0, 91 / 3, 6.0))
    # Half of the milliseconds of a window, in two windows of three; those of one call are of where it was seen.
    assert (found.forward_ms, found.backward_ms) == pytest.approx((8 / 3, 4.0))
    assert found.fixed_ms == pytest.approx(0.2)
    assert growing_calls(record(tmp_path / "older", window((16.0, 45.0), (4.0, 15.0))), PHASES) == ()


def test_parts_that_are_picked_are_brought_to_an_ordinary_step_too(tmp_path: Path) -> None:
    picks = {"at": ["/a/model.py", 9, "unroll"], "elements": 1000, "count": 50, "picked": 1000, "backward_ms": 12.0}
    both, none = (window((16.0, 45.0), (4.0, 15.0), picks=found) for found in ([picks, picks], []))

    (found,) = picked_parts(record(tmp_path, both, none), PHASES)

    assert (found.location, found.function) == (Location("/a/model.py", 9), "unroll")
    assert (found.tensors, found.count, found.elements, found.picked) == (1.0, 50.0, 1000.0, 1000.0)
    # 24 of 60 ms, in one window of two.
    assert found.backward_ms == pytest.approx(6.0)


def test_a_window_over_lines_only_tells_of_lines_and_of_nothing_else(tmp_path: Path) -> None:
    again = {"kind": "repeat", "module": "Linear", "at": ["/a/train.py", 9, "step"], "forward_ms": 4.0}
    whole = window((16.0, 45.0), (4.0, 15.0), calls=[again])
    lines = window((8.0, 30.0), (12.0, 30.0), without=["calls", "nodes"])
    ranks = record(tmp_path, whole, lines)

    (found,) = needless_calls(ranks, PHASES)
    assert found.calls == 1.0
    assert found.forward_ms == pytest.approx(2.0), "of the window that looked for such calls"
    assert {cost.location.line: cost.forward_ms for cost in op_costs(ranks, PHASES)}[7] == pytest.approx(6.0)
