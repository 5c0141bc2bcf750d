"""Rows read while they are written: each once, none torn."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from flatout.store.rows import GrowingRows, RowWriter, read_rows


def test_each_row_is_seen_once(tmp_path: Path) -> None:
    file = tmp_path / "gpu.rows"
    growing = GrowingRows(file)
    seen = []

    before = growing.poll()
    with closing(RowWriter(file, ("t_s", "util"))) as writer:
        for moment in range(5):
            writer.append((float(moment), None))
            if moment % 2:
                rows = growing.poll()
                assert rows is not None
                seen += rows.column("t_s").tolist()
    rest = growing.poll()

    assert before is None
    assert rest is not None
    assert seen + rest.column("t_s").tolist() == read_rows(file).column("t_s").tolist() == [0, 1, 2, 3, 4]
    assert growing.poll() is None


def test_a_row_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "gpu.rows"
    with closing(RowWriter(file, ("t_s",))) as writer:
        writer.append((1.0,))
        whole = file.read_bytes()
        writer.append((2.0,))
    both = file.read_bytes()
    growing = GrowingRows(file)

    file.write_bytes(whole + both[len(whole) : len(whole) + 5])
    first = growing.poll()
    # Its full length, but not all of it has arrived.
    file.write_bytes(both[:-1] + bytes([both[-1] ^ 1]))
    torn = growing.poll()
    file.write_bytes(both)
    second = growing.poll()

    assert first is not None and first.column("t_s").tolist() == [1.0]
    assert torn is None
    assert second is not None and second.column("t_s").tolist() == [2.0]


def test_a_damaged_row_costs_itself_only(tmp_path: Path) -> None:
    file = tmp_path / "gpu.rows"
    with closing(RowWriter(file, ("t_s",))) as writer:
        for moment in (1.0, 2.0, 3.0):
            writer.append((moment,))
    data = bytearray(file.read_bytes())
    data[-20] ^= 0xFF
    file.write_bytes(data)

    rows = GrowingRows(file).poll()

    assert rows is not None and rows.column("t_s").tolist() == [1.0, 3.0]


def test_a_foreign_file_has_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "gpu.rows"
    file.write_bytes(b"something else entirely, and long enough for a header")

    assert GrowingRows(file).poll() is None
