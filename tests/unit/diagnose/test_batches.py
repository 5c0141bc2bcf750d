"""What was noted of batches, read again: types that would hold what is copied, and padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.evidence import gather_evidence
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import Evidence
from flatout.records.report import Location
from flatout.words import english
from tests.unit.making import Making


def evidence(folder: Path, *texts: tuple[str, Any]) -> Evidence:
    making = Making(folder)
    process = making.process(pid=100)
    process.text("loader", {"id": 1, "file": "train.py", "line": 5, "num_workers": 0, "dataset_len": 32})
    process.text("torch", {"training_loaders": [1]})
    for what, value in texts:
        process.text(what, value)
    process.steps(20, 10.0)
    process.end()
    run = making.stored()
    return gather_evidence(run, training_ranks(run), summarise_run(run))


def kind(dtype: str, size: int, narrow: str, narrow_size: int, count: int) -> dict[str, Any]:
    return {"dtype": dtype, "itemsize": size, "narrow": narrow, "narrow_itemsize": narrow_size, "bytes": count}


def test_the_last_note_on_a_line_counts_and_bytes_are_weighed(tmp_path: Path) -> None:
    site = {"id": 7, "op": "h2d", "file": "train.py", "line": 12, "function": "train"}
    early = {"site": 7, "bytes": 400, "kinds": [kind("float32", 4, "uint8", 1, 400)]}
    late = {
        "site": 7,
        "bytes": 1000,
        "kinds": [kind("float32", 4, "uint8", 1, 800), kind("int64", 8, "int64", 8, 200)],
    }

    run = evidence(tmp_path, ("site", site), ("narrow", early), ("narrow", late))

    (one,) = run.narrow_copies
    assert (one.location, one.dtype, one.narrow) == (Location("train.py", 12), "float32", "uint8")
    assert one.saved_share == pytest.approx(0.6)


def test_nothing_to_save_is_no_narrow_copy(tmp_path: Path) -> None:
    site = {"id": 7, "op": "h2d", "file": "train.py", "line": 12, "function": "train"}
    note = {"site": 7, "bytes": 400, "kinds": [kind("float32", 4, "float32", 4, 400)]}

    assert evidence(tmp_path, ("site", site), ("narrow", note)).narrow_copies == ()


def note(length: int, lengths: list[int], loader: int = 1, computed: bool = True) -> tuple[str, Any]:
    value = {"loader": loader, "kind": "ids", "rows": len(lengths), "length": length, "value": 0, "lengths": lengths}
    return "padding", {**value, "computed": computed}


def test_padding_now_if_trimmed_and_if_sorted(tmp_path: Path) -> None:
    other = note(1000, [1, 1], loader=2)

    padding = evidence(tmp_path, note(100, [10, 50]), note(100, [50, 10], computed=False), other).padding

    assert padding is not None
    assert (padding.batches, padding.rows, padding.length) == (2, 4, 100.0)
    assert padding.share == pytest.approx(0.7)
    assert padding.share_if_trimmed == pytest.approx(0.4)
    # Sixteen batches of two: one in which both lengths meet.
    assert padding.share_if_sorted < 0.15
    assert (english(padding.kind), padding.computed_share) == ("the value 0", 0.5)


def test_without_a_note_there_is_none(tmp_path: Path) -> None:
    assert evidence(tmp_path).padding is None
