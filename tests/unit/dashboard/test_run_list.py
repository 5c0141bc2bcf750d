"""The runs on show: found again, by names that fit into an address."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.dashboard.run_list import RunList, key_of
from tests.unit.making import Making


def test_every_run_has_a_plain_name_and_is_found_by_it(tmp_path: Path) -> None:
    odd = tmp_path / "a <script> name\n"
    Making(tmp_path).stored().path.rename(odd)
    Making(tmp_path)
    shelf = RunList(tmp_path)

    runs = shelf.runs()

    assert len(runs) == 2
    assert all(re.fullmatch("[0-9a-f]{16}", run.key) and shelf.find(run.key) == run.path for run in runs)
    assert shelf.find(key_of(odd)) == odd


def test_nothing_else_is_found(tmp_path: Path) -> None:
    Making(tmp_path / "runs")
    shelf = RunList(tmp_path / "runs")

    assert shelf.find("../runs") is None
    assert shelf.find("") is None


def test_one_run_alone(tmp_path: Path) -> None:
    only = Making(tmp_path).stored().path
    Making(tmp_path)

    runs = RunList(only=only).runs()

    assert [run.path for run in runs] == [only]


def test_a_run_that_cannot_be_read_is_listed_as_such(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text('{"schema": 99}')

    (run,) = RunList(tmp_path).runs()

    assert run.line.state == "broken" and run.line.problem is not None


def test_the_newest_comes_first_whatever_it_is_called(tmp_path: Path) -> None:
    for name, started_s in (("a", 20.0), ("b", 30.0), ("c", 10.0)):
        making = Making(tmp_path)
        run = making.stored(started_unix_s=started_s)
        run.path.rename(tmp_path / name)

    assert [run.path.name for run in RunList(tmp_path).runs()] == ["b", "a", "c"]
