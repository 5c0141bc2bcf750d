"""A result goes on top of its benchmark's page, and its figures go to `raw/`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.common.results import RESULTS, write, write_index


def test_the_newest_result_is_on_top_and_older_ones_stay(tmp_path: Path) -> None:
    write("overhead", {"us": 19}, "first figures", tmp_path)
    write("overhead-10ms", {"us": 35}, "second figures", tmp_path)
    path = write("overhead", {"us": 18}, "corrected figures", tmp_path)

    text = path.read_text()
    assert path == tmp_path / "overhead.md"
    assert [figures in text for figures in ("first figures", "second figures", "corrected figures")] == [
        False,
        True,
        True,
    ]
    assert text.index("corrected figures") < text.index("second figures")
    assert sorted(json.loads(file.read_text())["us"] for file in (tmp_path / "raw").iterdir()) == [18, 35]
    assert "| 2 |" in (tmp_path / "README.md").read_text()


def test_the_index_is_up_to_date(tmp_path: Path) -> None:
    for page in RESULTS.glob("*.md"):
        (tmp_path / page.name).write_text(page.read_text())
    write_index(tmp_path)

    assert (tmp_path / "README.md").read_text() == (RESULTS / "README.md").read_text()
