"""The verdict as it looks. Snapshots are renewed with UPDATE_SNAPSHOTS=1."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.records.machine import MachineUse
from flatout.records.message import message, verbatim
from flatout.records.report import (
    PHASES,
    Finding,
    Gain,
    GpuUse,
    LineCost,
    Location,
    Overhead,
    PauseSite,
    PhaseShare,
    RunFacts,
    RunReport,
    SyncSite,
    Throughput,
    Verdict,
    WorkerCost,
)
from flatout.report.layout import Look
from flatout.report.terminal import render

_SNAPSHOTS = Path(__file__).parent / "snapshots"
_CWD = Path("/proj")
_SHARES = {"data": 0.61, "h2d": 0.012, "forward": 0.18, "backward": 0.12, "optimizer": 0.04, "sync": 0.021} | {
    "eval": 0.0,
    "checkpoint": 0.004,
    "logging": 0.003,
    "gc": 0.0,
    "other": 0.01,
}


def _at(file: str, line: int) -> Location:
    return Location(f"{_CWD}/{file}", line)


STARVED = RunReport(
    run=RunFacts("20260101-120000-train-ab12", ("train.py",), 0, 12_345, 1290.3, 1, "NVIDIA H200", "2.11.0", "3.11.7"),
    throughput=Throughput(9.64, 1234.0),
    phases={name: PhaseShare(_SHARES[name], _SHARES[name] * 103.7) for name in PHASES},
    gpu=GpuUse(0.61, 34.0, 21.0, 0.28, 0.12, 0.04, 12 << 30, 0.4),
    verdict=Verdict("input", False, verbatim("The GPU waits for data for 61% of each step (63.3 of 103.7 ms).")),
    findings=(),
    overhead=Overhead(8.2, 0.00008),
    lines=(
        LineCost(_at("data/sets.py", 41), "ImageSet.__getitem__", "data", 0.38, 39.4),
        LineCost(
            _at("a/very/long/folder/of/a/project/that/never/ends/losses.py", 1141), "losses", "forward", 0.09, 9.3
        ),
        LineCost(Location("/opt/lib/train.py", 12), "main", "other", 0.011, 1.1),
        LineCost(_at("train.py", 99), "main", "other", 0.001, 0.1),
    ),
    syncs=(
        SyncSite(_at("train.py", 88), "main", "item", 1.0, 2.1),
        SyncSite(_at("train.py", 91), "main", "hidden", 12.0, None),
    ),
    pauses=(PauseSite(_at("train.py", 95), "save", "checkpoint", 12, 31.0, 4.0),),
    workers=(WorkerCost(0, 2, 1000, 14.2, 0.3, 200.0, 0.99, 0.8, 0.1),),
    notices=(
        verbatim("PSS not measured: no permission to read the memory map of a worker that belongs to somebody else"),
    ),
)
HEALTHY = replace(
    STARVED,
    run=replace(STARVED.run, steps=40, wall_s=12.3, ranks=2),
    verdict=Verdict("compute", True, verbatim("The GPU computes for 97% of each step; nothing else would gain 5%.")),
    gpu=GpuUse(starved_share=0.01, util_mean=98.0, util_spread=1.0),
    findings=(),
    lines=(),
    syncs=(),
    pauses=(),
    workers=(),
    notices=(),
)
DISTURBED = replace(
    HEALTHY,
    verdict=Verdict("compute", False, verbatim("The GPU computes for 97% of each step.")),
    machine=MachineUse(
        2.0,
        0.8,
        1.2,
        disturbed=True,
        sentence=message(
            "machine.others",
            other=1.2,
            cores=2.0,
            who=message("machine.training"),
            share=0.41,
            names=message("machine.named", names=(message("machine.neighbour", name="stress", pid=4711, cores=1.2),)),
        ),
    ),
)
UNSEEN = RunReport(
    run=RunFacts("20260101-120000-x-ab12", ("x.py",), 3, 0, 0.4, 0, "cpu", None, None),
    throughput=Throughput(None, None),
    phases={},
    gpu=None,
    verdict=Verdict("balanced", True, verbatim("No step was recorded.")),
    findings=(),
    overhead=Overhead(None, None),
    notices=(verbatim("python was started with -S, which keeps flatout out: leave it away to watch the script"),),
)


@pytest.mark.parametrize(
    ("name", "report", "more"),
    [
        ("starved_80", STARVED, {}),
        ("starved_60", STARVED, {"width": 60}),
        ("starved_ascii", STARVED, {"unicode": False}),
        ("starved_verbose", STARVED, {"verbose": True}),
        ("starved_color", STARVED, {"color": True}),
        ("healthy", HEALTHY, {}),
        ("disturbed", DISTURBED, {}),
        ("unseen", UNSEEN, {}),
    ],
)
def test_looks_as_it_did(name: str, report: RunReport, more: dict[str, bool | int]) -> None:
    drawn = render(report, Look(cwd=_CWD, **more), f".flatout/runs/{report.run.id}")  # type: ignore[arg-type]

    file = _SNAPSHOTS / f"terminal_{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(drawn, encoding="utf-8")
    assert drawn == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
@pytest.mark.parametrize("report", [STARVED, HEALTHY, DISTURBED, UNSEEN])
def test_no_line_is_wider_than_the_terminal(report: RunReport, width: int) -> None:
    drawn = render(report, Look(width=width, cwd=_CWD, verbose=True), "run")

    assert max(len(line) for line in drawn.splitlines()) <= width


def test_without_colour_there_is_no_escape_and_with_it_the_words_are_the_same() -> None:
    plain = render(STARVED, Look(cwd=_CWD))

    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", render(STARVED, Look(cwd=_CWD, color=True))) == plain


def test_ascii_holds_nothing_else() -> None:
    render(STARVED, Look(cwd=_CWD, unicode=False)).encode("ascii")


def test_what_was_not_measured_is_said_not_shown_as_zero() -> None:
    drawn = render(replace(STARVED, gpu=GpuUse(), throughput=Throughput(2.0, None)))

    assert "starved not measured" in drawn and "util not measured" in drawn and "memory peak not measured" in drawn
    assert "samples/s not measured" in drawn
    assert "not measured" in render(replace(STARVED, gpu=None))


def test_escape_sequences_in_names_do_not_reach_the_terminal() -> None:
    evil = LineCost(Location("/x/\x1b[2Jevil\n.py", 1), "f\x1b]0;t\x07", "data", 0.5, 1.0)

    drawn = render(replace(STARVED, lines=(evil,), notices=(verbatim("a\x1b[31mb"),)))

    assert "\x1b" not in drawn and "\x07" not in drawn


def test_findings_are_shown_with_place_and_gain() -> None:
    gain = Gain(1.8, 2.1, 2.4, verbatim("workers"))
    finding = Finding(
        "IN101", "input", "Too few workers", "high", _at("train.py", 7), {}, verbatim(""), None, None, gain
    )

    drawn = render(replace(STARVED, findings=(finding,)), Look(cwd=_CWD))

    assert "IN101" in drawn and "Too few workers, train.py:7 · ×1.80 to ×2.40" in drawn


def test_lines_of_a_worker_are_shown_where_the_training_waits_for_them() -> None:
    line = LineCost(_at("data/sets.py", 52), "ImageSet.decode", "worker", 0.7, 4.2)
    waits = replace(STARVED, worker_lines=(line,))
    computes = replace(waits, verdict=Verdict("compute", True, verbatim("The GPU computes.")))

    assert re.search(r"worker +data/sets\.py:52 +ImageSet\.decode +70% +4\.20 ms", render(waits, Look(cwd=_CWD)))
    assert "sets.py:52" not in render(computes, Look(cwd=_CWD))
    assert "sets.py:52" in render(computes, Look(cwd=_CWD, verbose=True))
