"""A stored run with a window over operations: its work, its ladder, and attention by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import examine_run
from flatout.diagnose.work import hand_attention, work_shares
from flatout.records.evidence import Evidence
from flatout.records.report import Ladder
from tests.unit.making import Making

MEASURED = {
    "device": "NVIDIA H200",
    "tflops": {"bfloat16": 800.0},
    "memory_gb_s": 4000.0,
    "launch_us": 8.0,
    "source": "measured",
    "torch": "2.11.0",
}
# Two products of 8 batches of 1024 x 64 by 64 x 1024 and back, a softmax between, and an activation, in half precision.
WINDOW: dict[str, Any] = {
    "index": 9,
    "steps": 2,
    "with_memory": True,
    "convolves_in_tf32": True,
    "names": ["aten::bmm", "aten::_softmax", "aten::gelu"],
    "tensors": [
        [[8, 1024, 64], [65536, 64, 1], "bfloat16"],
        [[8, 64, 1024], [65536, 1, 64], "bfloat16"],
        [[8, 1024, 1024], [1048576, 1024, 1], "bfloat16"],
    ],
    "rows": [
        [0, "forward", [[0, 1], [1, 2]], [[3, 16777216]], [], 1],
        [1, "forward", [[2, 3]], [[4, 16777216]], [], 0],
        [0, "forward", [[2, 4], [0, 5]], [[6, 1048576]], [], 1],
        [2, "forward", [[0, 6]], [[7, 1048576]], [], 0],
    ],
}
SCORES = 8 * 1024 * 1024


def _run(making: Making, window: dict[str, Any] | None = WINDOW, **environment: object) -> Evidence:
    process = making.process()
    process.text("torch", {"version": "2.11.0", "device_name": "NVIDIA H200"})
    for _ in range(40):
        process.step(10.0, {"forward": 0.5, "backward": 0.4})
    if window is not None:
        process.text("operations", window)
    process.end()
    making.rows("gpu", ("t_s", "gpu", "util_percent"), [(5 + 0.1 * at, 0, 95.0) for at in range(8)])
    return examine_run(making.stored(environment={**making.manifest.environment, **environment}))


def _ladder(run: Evidence) -> Ladder | None:
    return None if run.report.gpu is None else run.report.gpu.ladder


def test_work_is_of_one_step(making: Making) -> None:
    run = _run(making)

    assert run.report.gpu is not None
    shares = {share.kind: share for share in run.report.gpu.work}
    assert shares["gemm"].flops == 2 * 2 * SCORES * 64 / 2 and shares["gemm"].precision == "bfloat16"
    # The softmax lies between two products, and the activation behind the last one: nothing to fuse.
    assert shares["reduction"].fused_bytes == shares["reduction"].bytes == 2 * 2 * SCORES / 2


def test_the_ladder_goes_by_what_was_measured_here_else_by_the_data_sheet(making: Making) -> None:
    measured = _ladder(_run(making, rooflines=[{"not": "one"}, {**MEASURED, "device": "Other"}, MEASURED]))

    assert measured is not None and measured.roofline.source == "measured"
    assert measured.ms_of("limit") == pytest.approx(1e-9 * 2 * SCORES * 64 / 800)
    assert (measured.peak_source, measured.precision) == ("data sheet", "bfloat16")


def test_without_a_measurement_it_is_the_data_sheets(making: Making) -> None:
    ladder = _ladder(_run(making))

    assert ladder is not None and ladder.roofline.source == ladder.peak_source == "data sheet"


def test_without_a_window_there_is_none(making: Making) -> None:
    run = _run(making, None)

    assert _ladder(run) is None and run.report.gpu is not None and run.report.gpu.work == ()
    assert run.hand_attention is None


def test_attention_by_hand_is_of_one_step(making: Making) -> None:
    run = _run(making)

    assert run.hand_attention is not None
    assert (run.hand_attention.calls, run.hand_attention.rows, run.hand_attention.columns) == (0.5, 1024, 1024)
    # The scores are written, read and written by the softmax, and read: four times two bytes.
    assert run.hand_attention.bytes == 4 * 2 * SCORES / 2


def test_a_window_of_a_run_without_a_gpu_is_read_too(making: Making) -> None:
    process = making.process()
    process.steps(20)
    process.text("operations", WINDOW)
    process.end()
    ranks = training_ranks(making.stored())

    assert {share.kind for share in work_shares(ranks)} == {"gemm", "reduction", "pointwise"}
    assert hand_attention(ranks) is not None
