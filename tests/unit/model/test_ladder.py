"""From a step as it is to the device's limit."""

from __future__ import annotations

import pytest

from flatout.model.ladder import make_ladder
from flatout.records.report import WorkShare
from flatout.records.roofline import Roofline

MEASURED = Roofline("GPU", {"float32": 50.0, "tf32": 400.0, "bfloat16": 800.0}, 4000.0, 8.0, "measured", "2.11.0")
SHEET = Roofline("GPU", {"float32": 60.0, "tf32": 500.0, "bfloat16": 1000.0}, 4800.0, None, "data sheet", "")
# 20 TFLOP in TF32: 50 ms at the measured rate. 80 GB between products, of which fusing leaves half: 10 ms.
WORK = (
    WorkShare("convolution", "tf32", 100.0, 20e12, 20e9, 20e9),
    WorkShare("pointwise", "float32", 300.0, 0.0, 80e9, 40e9),
    WorkShare("optimizer", "float32", 10.0, 0.0, 8e9, 4e9),
)


def test_each_rung_is_lower() -> None:
    ladder = make_ladder(160.0, 150.0, WORK, MEASURED, SHEET)

    assert ladder is not None
    assert [(rung.name, rung.ms) for rung in ladder.rungs] == [
        ("step", 160.0),
        ("busy", 150.0),
        ("kernels", pytest.approx(50.0 + 10.0 + 1.0)),
        ("precision", pytest.approx(25.0 + 5.5 + 1.0)),
        ("limit", pytest.approx(25.0)),
    ]
    assert ladder.ms_of("busy") == 150.0


def test_utilisation_is_of_the_data_sheets_peak_in_the_precision_of_the_products() -> None:
    ladder = make_ladder(160.0, 150.0, WORK, MEASURED, SHEET)
    without_sheet = make_ladder(160.0, 150.0, WORK, MEASURED, None)

    assert ladder is not None and without_sheet is not None
    assert (ladder.mfu, ladder.precision, ladder.peak_source) == (pytest.approx(40 / 160), "tf32", "data sheet")
    assert (without_sheet.mfu, without_sheet.peak_source) == (pytest.approx(50 / 160), "measured")
    assert ladder.tflops_per_s == pytest.approx(125.0)
    assert ladder.gb_per_s == pytest.approx(108 / 0.15)


def test_small_products_are_bound_by_what_they_move() -> None:
    work = (WorkShare("gemm", "bfloat16", 100.0, 1e9, 8e9, 8e9),)
    ladder = make_ladder(50.0, 40.0, work, MEASURED, SHEET)

    assert ladder is not None and ladder.ms_of("kernels") == pytest.approx(2.0)


def test_no_rung_is_above_the_one_before() -> None:
    ladder = make_ladder(30.0, 29.0, WORK, MEASURED, SHEET)

    assert ladder is not None and [rung.ms for rung in ladder.rungs] == [30.0, 29.0, 29.0, 29.0, pytest.approx(25.0)]


def test_where_no_kernels_were_recorded_there_is_no_rung_for_them() -> None:
    ladder = make_ladder(160.0, None, WORK, MEASURED, SHEET)

    assert ladder is not None and [rung.name for rung in ladder.rungs] == ["step", "kernels", "precision", "limit"]


def test_unknown_bytes_are_taken_to_be_halved() -> None:
    work = (WORK[0], WorkShare("pointwise", "float32", 300.0, 0.0, 80e9))
    ladder = make_ladder(160.0, 150.0, work, MEASURED, SHEET)

    assert ladder is not None and ladder.ms_of("kernels") == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("step_ms", "work"),
    [
        (0.0, WORK),
        (100.0, ()),
        (100.0, WORK[1:]),
        (100.0, (WorkShare("gemm", "int8", 1.0, 1e9, 1e6),)),
    ],
)
def test_none_where_the_device_or_the_work_is_not_known(step_ms: float, work: tuple[WorkShare, ...]) -> None:
    assert make_ladder(step_ms, step_ms, work, MEASURED, SHEET) is None
