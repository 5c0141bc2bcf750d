"""Tables as files: CSV for everything, Parquet where pyarrow is installed. What was not measured is empty, or null."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.errors import FlatoutError

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
