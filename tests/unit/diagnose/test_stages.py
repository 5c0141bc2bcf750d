"""Stages of a recorded run: means over its steady steps, shares, bounds, and what is left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from flatout.diagnose.summary import summarise_run
from flatout.words import english
from tests.unit.making import Making, Process, body

STAGES = [
    {"id": 3, "name": "backbone.layer1", "module": "Sequential", "parameters": 1000},
    {"id": 4, "name": "head", "module": "Linear", "parameters": 10},
]


def _sampled(process: Process, index: int, stage: int, forward_ms: float, backward_ms: float, calls: int = 1) -> None:
    process.append(body("stage", index, stage, calls, forward_ms, backward_ms))


def test_means_shares_and_bounds(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.text("stages", {"stages": [{"id": 0, "name": "old", "module": "M", "parameters": 0}], "left_out": {}})
    _sampled(process, 30, 0, 50.0, 50.0)
    process.text("stages", {"stages": STAGES, "left_out": {"neck": "compiled"}})
    process.steps(1, wall_ms=500.0)
    process.steps(99, wall_ms=100.0)
    _sampled(process, 0, 3, 400.0, 400.0)  # in a step of the warm-up
    for index, forward_ms in ((20, 10.0), (40, 20.0), (60, 30.0)):
        _sampled(process, index, 3, forward_ms, 30.0, calls=2)
        _sampled(process, index, 4, 1.0, math.nan)
    process.end()

    report = summarise_run(making.stored())

    assert report.stages is not None
    layer, head = report.stages
    assert (layer.name, layer.module, layer.parameters, layer.samples) == ("backbone.layer1", "Sequential", 1000, 3)
    assert (layer.forward_ms, layer.backward_ms, layer.calls_per_step) == (20.0, 30.0, 2.0)
    assert layer.share == pytest.approx(0.5)
    assert layer.if_free == pytest.approx(2.0) and layer.if_twice == pytest.approx(4 / 3)
    assert head.backward_ms is None and head.ms == 1.0
    assert "stages: neck left out (compiled)" in [english(notice) for notice in report.notices]


def test_nothing_where_nobody_asked(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.steps(20)
    process.end()

    assert summarise_run(making.stored()).stages is None


def test_one_sample_is_not_enough_and_the_reason_is_told(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.text("stages", {"stages": STAGES, "left_out": {}})
    process.steps(20)
    _sampled(process, 10, 3, 1.0, 1.0)
    process.text("stages_stopped", "its calls could not be followed")
    process.end()

    report = summarise_run(making.stored())

    assert report.stages is None
    assert "stages not measured any further: its calls could not be followed" in [
        english(notice) for notice in report.notices
    ]
