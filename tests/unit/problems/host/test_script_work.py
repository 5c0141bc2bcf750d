"""Where other work of the script is done, by the calls that lead to it."""

from __future__ import annotations

from dataclasses import replace

from flatout.problems.host.script_work import in_run
from flatout.records.evidence import Evidence
from flatout.records.ledger import CallPath, Ledger, LedgerEntry, Part
from flatout.records.message import verbatim
from flatout.records.report import Location, Verdict
from tests.cases.evidence import run

MS = {"forward": 20.0, "backward": 40.0, "other": 40.0}
# The function of each line, by its tens: 1 to 9 are the loop's.
FUNCTIONS = ("fit", "add", "refresh", "area", "ranked", "hook")


def at(number: int) -> Location:
    return Location("train.py", number)


def make(ms_of: dict[tuple[int, ...], float], passes: tuple[int, ...] = (5,), model: int = 4) -> Evidence:
    """A run in whose steps the script does so much by these ways; `passes` is the way to backward."""
    lines: dict[int, float] = {}
    for way, ms in ms_of.items():
        lines[way[-1]] = lines.get(way[-1], 0.0) + ms

    def entry(number: int, phase: str, ms: float, part: Part) -> LedgerEntry:
        return LedgerEntry(at(number), FUNCTIONS[number // 10], phase, "native", False, ms, ms / 100, 2 * ms, part)

    entries = [entry(number, "other", ms, "native") for number, ms in lines.items()]
    entries += [entry(passes[-1], "backward", 40.0, "model"), entry(model, "forward", 20.0, "model")]
    shares: dict[Part, float] = {"model": 0.6, "native": sum(lines.values()) / 100}

    def path(way: tuple[int, ...], phase: str, ms: float) -> CallPath:
        places = tuple(at(number) for number in way)
        return CallPath(places, tuple(FUNCTIONS[number // 10] for number in way), phase, ms, 2 * ms)

    paths = [path(way, "other", ms) for way, ms in ms_of.items()]
    paths += [path(passes, "backward", 40.0), path((*passes[:-1], model), "forward", 20.0)]
    seen = run(ms=MS, ledger=Ledger(tuple(entries), shares), call_paths=tuple(paths))
    return replace(seen, report=replace(seen.report, verdict=Verdict("host", False, verbatim("Busy."))))


def found(seen: Evidence) -> list[tuple[int, float]]:
    return [
        (finding.location.line, float(finding.evidence["work_ms_per_step"]))
        for finding in in_run(seen)
        if finding.location is not None
    ]


def test_what_is_spread_over_functions_is_one_piece_at_the_line_where_it_divides() -> None:
    # fit:7 calls add:11, which calls refresh: joins (20), an area (21) and a precision (22), which both rank (40).
    seen = make({(7, 11, 20): 5.0, (7, 11, 21, 30, 40): 20.0, (7, 11, 22, 31, 40): 12.0})

    assert found(seen) == [(21, 37.0)]


def test_it_is_where_nearly_all_of_it_is_done() -> None:
    assert found(make({(7, 11): 1.0, (7, 11, 20): 30.0})) == [(20, 31.0)]


def test_lines_of_the_loop_are_pieces_of_their_own() -> None:
    assert found(make({(7,): 20.0, (8, 20): 15.0})) == [(7, 20.0), (20, 15.0)]


def test_lines_beside_the_passes_are_those_of_the_loop_also_in_a_trainer() -> None:
    seen = make({(3, 11): 12.0, (3, 12, 20): 9.0, (3, 12, 21): 8.0}, passes=(3, 13), model=14)

    assert found(seen) == [(20, 17.0), (11, 12.0)]


def test_lines_of_a_hook_within_the_model_belong_together() -> None:
    assert found(make({(4, 50): 9.0, (4, 51): 8.0})) == [(50, 17.0)]
