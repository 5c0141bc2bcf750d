"""The table of stages, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flatout.records.report import StageCost
from flatout.report.json import from_json, to_json
from flatout.report.layout import Look
from flatout.report.terminal import render
from tests.unit.report.test_terminal import HEALTHY

STAGES = (
    StageCost("backbone.layer3", "Sequential", 7_098_368, 12.34, 25.6, 0.37, 1.587, 1.227, 1.0, 12),
    StageCost("a.very.long.name.of.a.stage.that.never.ends", "Block", 640, 0.05, None, 0.004, 1.004, 1.002, 4.0, 12),
    StageCost("head", "Linear", 10_250, 1.0, 2.0, 0.03, 1.031, 1.015, 1.0, 12),
)
REPORT = replace(HEALTHY, stages=STAGES)


def test_every_stage_has_its_line() -> None:
    drawn = render(REPORT, Look(width=80)).splitlines()

    at = next(n for n, line in enumerate(drawn) if "Stages of your model" in line)
    assert drawn[at].split()[-7:] == ["forward", "backward", "share", "if", "2×", "if", "free"]
    assert " ".join(drawn[at + 1].split()) == "backbone.layer3 7.10 M 12.3 ms 25.6 ms 37% ×1.23 ×1.59"
    assert "–" in drawn[at + 2], "what was not measured is not 0"
    assert drawn[at + 4].split() == ["the", "rest", "of", "the", "step", "60%"]


@pytest.mark.parametrize("width", [50, 60, 72, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    drawn = render(REPORT, Look(width=width, unicode=unicode))

    assert max(len(line) for line in drawn.splitlines()) <= width
    assert "head" in drawn and "37%" in drawn


def test_there_is_no_table_without_stages() -> None:
    assert "Stages" not in render(HEALTHY)
    assert "Stages" not in render(replace(HEALTHY, stages=()))


def test_json_keeps_them_and_is_null_without() -> None:
    value = json.loads(json.dumps(to_json(REPORT)))

    assert list(value["stages"][0])[:5] == ["name", "module", "parameters", "forward_ms", "backward_ms"]
    assert value["stages"][1]["backward_ms"] is None
    assert from_json(value).stages == STAGES
    assert to_json(HEALTHY)["stages"] is None and from_json(to_json(HEALTHY)).stages is None
