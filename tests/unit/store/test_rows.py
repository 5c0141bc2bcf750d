from __future__ import annotations

import math
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import FlatoutError
from flatout.store.rows import RowWriter, read_rows

COLUMNS = ("t_s", "gpu", "power_w")


def written(path: Path, rows: int = 5) -> bytes:
    with closing(RowWriter(path, COLUMNS)) as writer:
        for i in range(rows):
            writer.append((float(i), 0.0, None))
    return path.read_bytes()


@given(st.lists(st.tuples(*[st.none() | st.floats()] * 3), max_size=20))
def test_rows_round_trip_with_none_as_nan(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float | None, ...]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.rows"
    with closing(RowWriter(path, COLUMNS)) as writer:
        for row in rows:
            writer.append(row)

    read = read_rows(path)

    expected = np.array([[math.nan if v is None else v for v in row] for row in rows]).reshape(-1, 3)
    assert read.columns == COLUMNS and read.lost == 0
    np.testing.assert_array_equal(read.values, expected)


def test_rows_are_readable_while_they_are_written(tmp_path: Path) -> None:
    with closing(RowWriter(tmp_path / "a.rows", COLUMNS)) as writer:
        for i in range(3):
            writer.append((i, 1, 2))
            assert len(read_rows(tmp_path / "a.rows").values) == i + 1


def test_truncation_at_every_offset_keeps_the_rows_before(tmp_path: Path) -> None:
    data = written(tmp_path / "a.rows")
    row_bytes = 8 * len(COLUMNS) + 4
    start = len(data) - 5 * row_bytes
    for cut in range(start, len(data)):
        (tmp_path / "cut.rows").write_bytes(data[:cut])

        rows = read_rows(tmp_path / "cut.rows")

        assert rows.column("t_s").tolist() == list(range((cut - start) // row_bytes))
        assert rows.lost == ((cut - start) % row_bytes > 0)


def test_a_flip_at_every_offset_costs_one_row(tmp_path: Path) -> None:
    data = written(tmp_path / "a.rows")
    for at in range(len(data) - 5 * (8 * len(COLUMNS) + 4), len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x40
        (tmp_path / "flipped.rows").write_bytes(flipped)

        rows = read_rows(tmp_path / "flipped.rows")

        assert len(rows.values) == 4 and rows.lost == 1


def test_an_absent_column_is_nan(tmp_path: Path) -> None:
    written(tmp_path / "a.rows")

    assert np.isnan(read_rows(tmp_path / "a.rows").column("tensor_active")).all()


def test_an_unknown_version_and_a_damaged_head_are_refused(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "a.rows"))
    struct.pack_into("<I", data, 8, 7)
    (tmp_path / "new.rows").write_bytes(data)
    with pytest.raises(FlatoutError, match="version 7"):
        read_rows(tmp_path / "new.rows")

    data = bytearray(written(tmp_path / "b.rows"))
    data[40] ^= 0xFF
    (tmp_path / "bad.rows").write_bytes(data)
    with pytest.raises(FlatoutError, match="damaged header"):
        read_rows(tmp_path / "bad.rows")


def test_columns_must_be_distinct(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="distinct"):
        RowWriter(tmp_path / "a.rows", ("a", "a"))
