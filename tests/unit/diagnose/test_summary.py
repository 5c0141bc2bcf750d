from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.attach import wire
from flatout.diagnose.summary import summarise_run
from flatout.records.report import PHASES
from flatout.words import english
from tests.unit.making import MS, UNKNOWN, Making, Process, body

BUSY = {"data": 0.3, "forward": 0.2, "backward": 0.4, "optimizer": 0.05, "sync": 0.01}


def test_a_plain_run(tmp_path: Path) -> None:
    making = Making(tmp_path, ("train.py", "--lr", "0.1"))
    process = making.process()
    process.text("torch", {"version": "2.12.0"})
    process.text("torch", {"version": "2.13.0", "device_name": None})
    process.step(500.0)
    process.steps(99, 10.0, BUSY)
    process.end()

    report = summarise_run(making.stored())

    assert (report.run.steps, report.run.ranks, report.run.wall_s, report.run.exit_code) == (100, 1, 60.0, 0)
    assert (report.run.device, report.run.torch, report.run.python) == ("cpu", "2.13.0", "3.11.7")
    assert report.warmup_steps == 1
    assert report.throughput.steps_per_s == pytest.approx(100.0)
    assert report.throughput.samples_per_s == pytest.approx(3200.0)
    assert report.phases["data"].share == pytest.approx(0.3)
    assert report.phases["backward"].ms == pytest.approx(4.0)
    assert report.gpu is None
    assert report.verdict.bound == "input"
    assert report.overhead.us_per_step == pytest.approx(10.0)
    assert report.overhead.share == pytest.approx(0.001)
    assert [finding.code for finding in report.findings] == ["IN118"]


@given(
    st.lists(st.lists(st.floats(0.0, 1.0), min_size=11, max_size=11), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
)
def test_phases_add_up_to_the_wall_time_also_of_merged_steps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[float]], merged: list[int]
) -> None:
    making = Making(tmp_path_factory.mktemp("run"))
    process = making.process()
    for weights, count in zip(steps, merged, strict=False):
        total = sum(weights) or 1.0
        process.step(10.0 * count, {n: w / total for n, w in zip(wire.PHASES, weights, strict=True)}, steps=count)
    process.end()

    report = summarise_run(making.stored())

    assert report.run.steps == sum(merged[: len(steps)])
    assert sum(p.share for p in report.phases.values()) == pytest.approx(1.0)
    assert sum(p.ms for p in report.phases.values()) == pytest.approx(10.0)
    assert all(p.share >= 0 for p in report.phases.values())
    assert tuple(report.phases) == PHASES


def test_a_record_written_again_in_the_next_chunk_counts_once(making: Making) -> None:
    process = making.process()
    process.steps(10)
    process.index -= 1
    process.now_ns -= 10 * MS
    process.step(14.0, samples=64)
    process.end()

    report = summarise_run(making.stored())

    assert report.run.steps == 10
    assert report.throughput.samples_per_s == pytest.approx((9 * 32 + 64) / 0.104)


def test_unknown_batch_sizes_give_no_samples_per_second(making: Making) -> None:
    process = making.process()
    process.steps(20, samples=UNKNOWN)
    process.end()

    report = summarise_run(making.stored())

    assert report.throughput.steps_per_s == pytest.approx(100.0)
    assert report.throughput.samples_per_s is None
    assert any("samples/s not measured" in notice for notice in map(english, report.notices))


def test_no_steps_at_all(making: Making) -> None:
    process = making.process()
    process.text("torch", {"version": "2.13.0"})
    process.end()

    report = summarise_run(making.stored(exit_code=1))

    assert (report.run.steps, report.run.ranks, report.run.torch) == (0, 0, "2.13.0")
    assert report.throughput.steps_per_s is None and report.overhead.us_per_step is None
    assert sum(p.share for p in report.phases.values()) == 0
    assert not report.verdict.healthy


def test_lines_get_their_part_of_the_phase(making: Making) -> None:
    process = making.process()
    process.steps(20, 10.0, {"data": 0.6, "forward": 0.4})
    process.end()
    lines = making.lines()
    for number in range(12):
        lines.text("line", {"id": number, "file": "data.py", "line": number + 1, "function": "__getitem__"})
    lines.append(body("line", 0, wire.DATA, 1, 0.01, 2, 0, 0))
    lines.append(body("line", 0, wire.DATA, 30, 0.75, 2, 0, 0))
    lines.append(body("line", 1, wire.DATA, 10, 0.25, 2, 0, 0))
    for number in range(2, 12):
        lines.append(body("line", number, wire.FORWARD, 1, 0.1, 2, 0, 0))
    lines.close()

    report = summarise_run(making.stored())

    assert len(report.lines) == 10
    first = report.lines[0]
    assert (first.location.file, first.location.line, first.phase) == ("data.py", 1, "data")
    assert first.share == pytest.approx(0.45) and first.ms == pytest.approx(4.5)
    assert report.lines[2].share == pytest.approx(0.04)


def test_call_sites(making: Making) -> None:
    process = making.process()
    process.steps(20)
    for number, op in enumerate(("item", "h2d", "hidden", "checkpoint")):
        process.text("site", {"id": number, "op": op, "file": "train.py", "line": 10 + number, "function": "main"})
    process.append(body("site", 0, 20, 10 * MS, MS, 0, 0, 0, 0))
    process.append(body("site", 0, 40, 30 * MS, MS, 0, 0, 0, 0))
    process.append(body("site", 1, 20, 20 * MS, MS, 2000, 10, 5, 0))
    process.append(body("site", 2, 6, 0, 0, 0, 0, 0, 3))
    process.append(body("site", 3, 2, 500 * MS, 300 * MS, 0, 0, 0, 0))
    process.end()

    report = summarise_run(making.stored())

    item, hidden = report.syncs
    assert (item.op, item.per_step, item.ms) == ("item", 2.0, pytest.approx(1.5))
    assert (hidden.op, hidden.per_step, hidden.ms) == ("hidden", 2.0, None)
    (copy,) = report.copies
    assert (copy.per_step, copy.ms, copy.bytes_per_step) == (1.0, pytest.approx(1.0), 100.0)
    assert (copy.pinned_share, copy.non_blocking_share) == (0.5, 0.25)
    (pause,) = report.pauses
    assert (pause.op, pause.count, pause.total_s, pause.max_s) == (
        "checkpoint",
        2,
        pytest.approx(0.5),
        pytest.approx(0.3),
    )


def test_loader_workers(making: Making) -> None:
    start = 5_000 * MS
    process = making.process(pid=100)
    settings = {"file": "train.py", "line": 5, "num_workers": 2, "batch_size": 8}
    for number, begun in ((1, start), (2, start + 1000 * MS)):
        process.text("loader", {"id": number, **settings})
        process.append(body("epoch", number, 2, begun, begun + 5 * MS))
        process.text("workers", {"loader": number, "pids": [200 + number], "start_ns": begun})
    process.steps(20, queue=3)
    process.end()
    for number, begun in ((1, start), (2, start + 1000 * MS)):
        worker = making.process(pid=200 + number, role="worker", ppid=100, start_ns=begun + 50 * MS)
        first, last = begun + 100 * MS, begun + 200 * MS
        worker.append(body("fetch", 0xFFFFFFFF, number - 1, first, last, 4, 32, 64 * MS, 16 * MS, 30 * MS, 20 * MS))
        worker.close()

    report = summarise_run(making.stored())

    (cost,) = report.workers
    assert (cost.loader, cost.workers, cost.samples) == (1, 2, 64)
    assert cost.fetch_ms_per_sample == pytest.approx(2.0) and cost.collate_ms_per_sample == pytest.approx(0.5)
    assert cost.slowest_batch_ms == pytest.approx(30.0)
    assert cost.busy_share == pytest.approx(0.8)
    assert cost.startup_s == pytest.approx(0.1)
    assert cost.queue_depth == pytest.approx(3.0)
    assert [loader["id"] for loader in report.live["loaders"]] == [1]  # type: ignore[attr-defined]


def test_fetching_in_the_main_process_belongs_to_the_epoch_begun_before(making: Making) -> None:
    process = making.process()
    process.steps(5)
    for number, begun in ((1, 1000), (2, 2000)):
        process.append(body("epoch", number, 0, begun, begun + 10))
        process.append(body("fetch", 0xFFFFFFFF, -1, begun + 5, begun + 900, 1, 10 * number, MS, 0, MS, 0))
    process.end()

    report = summarise_run(making.stored())

    assert [(c.loader, c.workers, c.samples, c.busy_share) for c in report.workers] == [
        (1, 0, 10, None),
        (2, 0, 20, None),
    ]


def test_the_gpu_from_its_timeline_and_the_samples_taken_during_steps(making: Making) -> None:
    process = making.process(start_ns=10_000 * MS)
    process.text("torch", {"version": "2.11.0", "device_name": "NVIDIA H200"})
    process.steps(100, 10.0, {"data": 0.4, "forward": 0.6})
    for i in range(10):
        process.append(body("device", 10 * i, 2.0, 3.0, 4.0, 1.0, math.nan, 10.0, 4, 1))
    process.append(body("device", 95, math.nan, 3.0, 4.0, 1.0, math.nan, 10.0, 4, 1))
    process.end()
    columns = ("t_s", "gpu", "util_percent", "own_memory_bytes", "memory_used_bytes", "power_w", "power_limit_w")
    columns += ("sm_active_share",)
    rows: list[tuple[float | None, ...]] = [(1.0, 0, 0.0, 5e9, 9e9, 100.0, 700.0, None)]
    # A reading tells of the time before it: the first ones after the start are of what was before.
    rows += [(10.0 + 0.2 * i, 0, 3.0, 20e9, 30e9, 100.0, 700.0, 0.1) for i in range(2)]
    for i in range(5):
        rows.append((10.41 + 0.12 * i, 0, 80.0 + 10 * (i % 2), 20e9 + i, 30e9, 350.0, 700.0, 0.5))
        rows.append((10.41 + 0.12 * i, 1, 0.0, None, 70e9, 90.0, 700.0, 0.0))
    making.rows("gpu", columns, rows)

    report = summarise_run(making.stored())

    gpu = report.gpu
    assert gpu is not None and report.run.device == "NVIDIA H200"
    assert gpu.starved_share == pytest.approx(0.2)
    assert gpu.drained_share == pytest.approx(0.25)
    assert gpu.device_ms["backward"] == pytest.approx(4.0) and "other" not in gpu.device_ms
    assert gpu.util_mean == pytest.approx(84.0) and gpu.util_spread == pytest.approx(4.899, abs=0.01)
    assert gpu.power_share == pytest.approx(0.5)
    assert gpu.sm_active == pytest.approx(0.5) and gpu.tensor_active is None
    assert gpu.memory_peak == int(20e9) + 4
    assert gpu.busy_share is None  # somebody else's ten gigabytes are there: whose kernels ran is not known
    assert report.verdict.bound == "input"


def test_utilisation_is_the_runs_own_where_nobody_else_is_on_the_gpu(making: Making) -> None:
    process = making.process(start_ns=10_000 * MS)
    process.steps(100, 10.0, {"forward": 0.7, "sync": 0.3})
    process.end()
    columns = ("t_s", "gpu", "util_percent", "own_memory_bytes", "memory_used_bytes")
    making.rows("gpu", columns, [(10.0 + 0.1 * i, 0, 75.0, 20e9, 20.01e9) for i in range(10)])

    gpu = summarise_run(making.stored()).gpu

    assert gpu is not None and gpu.busy_share == pytest.approx(0.75)


def test_a_gpu_that_was_not_measured_is_said_to_be_so(making: Making) -> None:
    process = making.process()
    process.text("torch", {"device_name": "NVIDIA H200"})
    process.steps(10, phases=BUSY)
    process.end()

    report = summarise_run(making.stored())

    assert report.gpu is None
    assert any("starvation not measured" in n for n in map(english, report.notices))
    assert any("utilisation not measured" in n for n in map(english, report.notices))


def test_a_script_that_makes_its_batches_itself_has_no_starvation_to_measure(making: Making) -> None:
    process = making.process()
    process.text("torch", {"device_name": "NVIDIA H200"})
    process.steps(20, phases={"forward": 0.4, "backward": 0.5})
    process.append(body("device", 15, math.nan, 3.0, 4.0, 1.0, math.nan, 10.0, 4, 0))
    process.end()

    report = summarise_run(making.stored())

    assert report.gpu is not None and report.gpu.starved_share is None
    assert not any("starvation" in notice for notice in map(english, report.notices))


def test_nor_does_one_whose_kernels_were_recorded_lack_it(making: Making) -> None:
    process = making.process()
    process.text("torch", {"device_name": "NVIDIA H200"})
    process.steps(20, phases=BUSY)
    process.append(body("device", 15, math.nan, 3.0, 4.0, 1.0, math.nan, 10.0, 4, 0))
    window = {"names": ["ampere_sgemm_128x64"], "rows": [[0, None, 3, 8.0]], "busy_ms": 8.0, "kernels": 3, "steps": 1}
    process.text("kernels", window)
    process.end()

    report = summarise_run(making.stored())

    assert report.gpu is not None and report.gpu.starved_share is None
    assert report.gpu.busy_share == pytest.approx(0.8)
    assert not any("starvation" in notice for notice in map(english, report.notices))


STAGES = [
    {"id": 3, "name": "backbone.layer1", "module": "Sequential", "parameters": 1000},
    {"id": 4, "name": "head", "module": "Linear", "parameters": 10},
]


def _sampled(process: Process, index: int, stage: int, forward_ms: float, backward_ms: float, calls: int = 1) -> None:
    process.append(body("stage", index, stage, calls, forward_ms, backward_ms))


def test_means_shares_and_bounds(making: Making) -> None:
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


def test_nothing_where_nobody_asked(making: Making) -> None:
    process = making.process()
    process.steps(20)
    process.end()

    assert summarise_run(making.stored()).stages is None


def test_one_sample_is_not_enough_and_the_reason_is_told(making: Making) -> None:
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
