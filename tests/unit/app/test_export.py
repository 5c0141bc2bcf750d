"""Tables and curves of a run, as the libraries that read them see them."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from flatout.app.export import export_metrics, export_tables, open_atomic
from flatout.diagnose.export import MOST_POINTS, make_scalars, make_tables
from flatout.errors import FlatoutError
from flatout.records.report import PHASES
from flatout.records.timeline import Scalar
from flatout.report import tracking_tools as metrics
from flatout.store.run import StoredRun
from tests.unit.making import UNKNOWN, Making, body

SHARES = {"data": 0.5, "forward": 0.25}


def make(tmp_path: Path, steps: int = 50, ranks: int = 2) -> StoredRun:
    making = Making(tmp_path)
    for rank in range(ranks):
        process = making.process(100 + rank, rank=rank, host=socket.gethostname(), start_unix_ns=10**18)
        process.steps(steps - 1, 10.0, SHARES, queue=3)
        process.step(10.0, SHARES, samples=UNKNOWN)
        process.append(body("device", 7, 1.0, 2.0, 3.0, 4.0, float("nan"), 10.0, 4, 1))
        process.end()
    making.rows("gpu", ("t_s", "gpu", "util_percent", "memory_used_bytes"), [(4.9, 0, 50, 2**30), (5.1, 0, None, 1)])
    making.rows("processes", ("t_s", "pid", "role", "cpu_share"), [(5.105, 100, 0, 0.5), (5.105, 101, 1, 0.25)])
    return making.stored()


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_every_step_and_sample_is_a_row_of_csv(tmp_path: Path) -> None:
    run = make(tmp_path)

    files = export_tables(str(run.path), tmp_path / "new" / "tables", as_parquet=False)

    assert [file.name for file in files] == [
        "steps.csv",
        "device.csv",
        "telemetry_gpu.csv",
        "telemetry_processes.csv",
    ]
    steps = _rows(files[0])
    assert len(steps) == 100
    assert [steps[0][name] for name in ("rank", "pid", "step", "steps", "samples", "batches_ready")] == [
        *("0", "100", "1", "1"),
        *("32", "3"),
    ]
    assert float(steps[1]["start_s"]) - float(steps[0]["start_s"]) == pytest.approx(0.01)
    assert float(steps[0]["data_ms"]) == pytest.approx(5.0)
    assert sum(float(steps[0][f"{phase}_ms"]) for phase in PHASES) == pytest.approx(10.0)
    assert steps[49]["samples"] == "" and steps[49]["batches_ready"] == ""  # not measured is no zero
    assert steps[50]["rank"] == "1"
    gpu = _rows(files[2])
    assert gpu[0] == {"t_s": "0", "gpu": "0", "util_percent": "50", "memory_used_bytes": str(2**30)}
    assert gpu[1]["util_percent"] == ""
    assert [row["role"] for row in _rows(files[3])] == ["main", "worker"]
    assert _rows(files[1])[0]["other_ms"] == ""
    # For others to read, as any file that one writes.
    assert stat.S_IMODE(files[0].stat().st_mode) & 0o400
    assert not list(files[0].parent.glob(".*"))


def test_parquet_holds_the_same_where_pyarrow_is_there(tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: make setup")
    run = make(tmp_path)

    files = export_tables(str(run.path), tmp_path / "tables", as_parquet=True)

    read = parquet.read_table(files[0])
    assert read.column_names == list(make_tables(run)["steps"])
    assert read.column("step").to_pylist()[:2] == [1, 2]
    assert read.column("samples").null_count == 2


def test_what_is_not_installed_is_one_line_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(FlatoutError, match="pip install pyarrow, or export csv"):
        export_tables(str(run.path), tmp_path / "out", as_parquet=True)
    for tool in metrics.TOOLS:
        with pytest.raises(FlatoutError, match=f"{tool} is not installed here: pip install {tool}"):
            export_metrics(str(run.path), tool, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_folder_that_a_tool_wrote_is_not_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    if (spec := importlib.util.find_spec("wandb")) is not None and spec.origin is not None:
        pytest.skip("wandb is installed")

    with pytest.raises(FlatoutError, match="wandb is not installed"):
        metrics.check_tool("wandb")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("before")

    with pytest.raises(FlatoutError, match=r"a\.csv.*cannot be written"), open_atomic(file) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")
    with pytest.raises(FlatoutError, match="cannot be made"):
        export_tables(str(make(tmp_path / "runs").path), file / "below", as_parquet=False)

    assert file.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "runs"]


def _by_name(found: tuple[Scalar, ...]) -> dict[str, Scalar]:
    return {one.name.removeprefix("flatout/"): one for one in found}


def test_curves_have_steps_times_and_values(tmp_path: Path) -> None:
    found = _by_name(make_scalars(make(tmp_path)))

    assert found["step_ms"].steps == tuple(range(1, 51))
    assert found["step_ms"].values == pytest.approx([10.0] * 50)
    assert found["samples_per_s"].values[0] == pytest.approx(2 * 3200)  # of both ranks
    assert len(found["samples_per_s"].values) == 49  # of the last step it is not known
    assert found["phase_ms/data"].values[0] == pytest.approx(5.0)
    assert "phase_ms/eval" not in found and "gpu0/power_w" not in found
    assert found["gpu0/util_percent"].steps == (0,)  # before the first step
    assert found["host/cpu_cores"].values == (0.75,)
    assert found["host/cpu_cores"].steps == (11,)
    assert found["step_ms"].unix_s[1] - found["step_ms"].unix_s[0] == pytest.approx(0.01, abs=1e-6)
    assert found["step_ms"].unix_s[0] == pytest.approx(1e9)


def test_a_long_run_has_no_more_points_and_keeps_its_slowest_step(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.steps(2500, 10.0, SHARES)
    process.step(500.0, SHARES)
    process.steps(2499, 10.0, SHARES)
    process.end()

    found = _by_name(make_scalars(making.stored()))

    assert len(found["step_ms"].values) == MOST_POINTS
    assert max(found["longest_step_ms"].values) == pytest.approx(500.0)
    assert max(found["step_ms"].values) == pytest.approx((500.0 + 4 * 10.0) / 5)


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    name = "tensorboard.backend.event_processing.event_accumulator"
    loading: Any = pytest.importorskip(name, reason="tensorboard is not installed: make setup")
    run = make(tmp_path)

    count = export_metrics(str(run.path), "tensorboard", tmp_path / "logs")

    (folder,) = (tmp_path / "logs").iterdir()
    read = loading.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    assert folder.name == run.id
    assert len(read.Tags()["scalars"]) == count
    events = read.Scalars("flatout/step_ms")
    assert [event.step for event in events] == list(range(1, 51))
    assert events[0].value == pytest.approx(10.0)
    assert events[0].wall_time == pytest.approx(1e9)


def test_mlflow_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow brings much along: make soak installs it apart and runs this")
    run = make(tmp_path)

    export_metrics(str(run.path), "mlflow", tmp_path / "mlruns")
    export_metrics(str(run.path), "mlflow", tmp_path / "mlruns")

    tracking: Any = importlib.import_module("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    found = client.search_runs([client.get_experiment_by_name("flatout").experiment_id])
    assert [one.info.run_name for one in found] == [run.id] * 2
    history = client.get_metric_history(found[0].info.run_id, "flatout/step_ms")
    assert sorted(point.step for point in history) == list(range(1, 51))
    assert found[0].data.params["command"] == "train.py"


def test_wandb_gets_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb brings much along: make soak installs it apart and runs this")

    export_metrics(str(make(tmp_path).path), "wandb", tmp_path / "logs")

    (file,) = (tmp_path / "logs" / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"flatout/step_ms" in file.read_bytes()


def test_a_name_that_leads_elsewhere_stays_a_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: make setup")

    metrics.write_metrics("tensorboard", (), tmp_path / "logs", "../../elsewhere", {})

    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
