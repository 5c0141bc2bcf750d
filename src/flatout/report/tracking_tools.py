"""A run's curves in the files of TensorBoard, Weights & Biases (offline) and MLflow, written by their own libraries.

The libraries are looked for when they are asked for; flatout does not depend on any of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.errors import FlatoutError
from flatout.records.timeline import Scalar

_MOST_IN_BATCH = 1000


def write_metrics(tool: str, scalars: Sequence[Scalar], folder: Path, run: str, facts: Mapping[str, str]) -> None:
    """`tool` is one of TOOLS; `facts` are a few words on the run for tools that show such."""
    check_tool(tool)
    # A name becomes a folder: nothing in it may lead elsewhere.
    TOOLS[tool](scalars, folder, re.sub(r"[^\w.-]+|^\.+", "-", run) or "run", facts)


def check_tool(tool: str) -> None:
    spec = importlib.util.find_spec(tool)
    # A mere folder of that name is what the tool writes to, not the tool.
    if spec is None or spec.origin is None:
        raise FlatoutError(f"{tool} is not installed here: pip install {tool}, or export csv")


def _tensorboard(scalars: Sequence[Scalar], folder: Path, run: str, _: Mapping[str, str]) -> None:
    writer_module: Any = importlib.import_module("tensorboard.summary.writer.event_file_writer")
    events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
    summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    writer = writer_module.EventFileWriter(str(folder / run))
    try:
        for scalar in scalars:
            for step, unix_s, value in zip(scalar.steps, scalar.unix_s, scalar.values, strict=True):
                point = summaries.Summary.Value(tag=scalar.name, simple_value=value)
                writer.add_event(events.Event(wall_time=unix_s, step=step, summary=summaries.Summary(value=[point])))
    finally:
        writer.close()


def _wandb(scalars: Sequence[Scalar], folder: Path, run: str, facts: Mapping[str, str]) -> None:
    # Nothing is to leave the machine, reports of its own errors included.
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    wandb: Any = importlib.import_module("wandb")
    wished = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
    wished |= {f"x_{name}": True for name in ("disable_stats", "disable_meta", "disable_machine_info")}
    wished["x_save_requirements"] = False
    # Which of these there are differs from version to version.
    known = getattr(wandb.Settings, "model_fields", {})
    settings = wandb.Settings(**{name: value for name, value in wished.items() if name in known})
    logged = wandb.init(
        mode="offline", dir=str(folder), project="flatout", name=run, config=dict(facts), settings=settings
    )
    # Steps may only go up, so that all curves are told together, step by step.
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for scalar in scalars:
        for step, value in zip(scalar.steps, scalar.values, strict=True):
            by_step[step][scalar.name] = value
    for step in sorted(by_step):
        logged.log(by_step[step], step=step)
    logged.finish()


def _mlflow(scalars: Sequence[Scalar], folder: Path, run: str, facts: Mapping[str, str]) -> None:
    # Newer ones want to be told that files are meant, and do not want a database.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking: Any = importlib.import_module("mlflow.tracking")
    entities: Any = importlib.import_module("mlflow.entities")
    client = tracking.MlflowClient(tracking_uri=folder.absolute().as_uri())
    found = client.get_experiment_by_name("flatout")
    experiment = client.create_experiment("flatout") if found is None else found.experiment_id
    run_id = client.create_run(experiment, run_name=run).info.run_id
    params = [entities.Param(name, value[:500]) for name, value in facts.items()]
    client.log_batch(run_id, params=params)
    points = [
        entities.Metric(scalar.name, value, int(unix_s * 1e3), step)
        for scalar in scalars
        for step, unix_s, value in zip(scalar.steps, scalar.unix_s, scalar.values, strict=True)
    ]
    for start in range(0, len(points), _MOST_IN_BATCH):
        client.log_batch(run_id, metrics=points[start : start + _MOST_IN_BATCH])
    client.set_terminated(run_id)


_Writer = Callable[[Sequence[Scalar], Path, str, Mapping[str, str]], None]
# By the name that the tool has here, in `pip install` and as a module.
TOOLS: dict[str, _Writer] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


# Tables as files: CSV for everything, Parquet where pyarrow is installed. What was not measured is empty, or null.


Table = Mapping[str, NDArray[Any]]

_BLOCK = 20_000
# Up to here a float holds every whole number.
_EXACT = 2.0**53


def csv_blocks(table: Table) -> Iterator[bytes]:
    """The file in pieces: a run of a million steps is not held in memory as text."""
    yield (",".join(table) + "\n").encode()
    length = len(next(iter(table.values()), ()))
    for start in range(0, length, _BLOCK):
        columns = [_words(values[start : start + _BLOCK]) for values in table.values()]
        yield "".join(",".join(row) + "\n" for row in zip(*columns, strict=True)).encode()


def _words(values: NDArray[Any]) -> list[str]:
    if values.dtype == np.bool_:
        return ["1" if value else "0" for value in values.tolist()]
    if values.dtype.kind == "f":
        return _figures(values)
    return [str(value) for value in values.tolist()]


def _figures(values: NDArray[Any]) -> list[str]:
    """Whole numbers as such, bytes above all; else nine figures: microseconds in a run of some minutes."""
    unknown = np.isnan(values)
    known = values[~unknown]
    if np.all(known == np.floor(known)) and np.all(np.abs(known) < _EXACT):
        words = [str(value) for value in np.where(unknown, 0, values).astype(np.int64).tolist()]
    else:
        # One call for all of them takes a quarter of the time.
        words = (("%.9g\n" * len(values)) % tuple(values.tolist())).split("\n")[:-1]
    for place in np.flatnonzero(unknown).tolist():
        words[place] = ""
    return words


def check_parquet() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise FlatoutError("Parquet needs pyarrow, which is not installed: pip install pyarrow, or export csv")


def write_parquet(table: Table, file: Path) -> None:
    pyarrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    columns = {}
    for name, values in table.items():
        if values.dtype.kind == "f":
            columns[name] = pyarrow.array(values, mask=~np.isfinite(values))
        elif values.dtype.kind == "O":
            columns[name] = pyarrow.array(values.tolist(), pyarrow.string())
        else:
            columns[name] = pyarrow.array(values)
    parquet.write_table(pyarrow.table(columns), file, compression="zstd")
