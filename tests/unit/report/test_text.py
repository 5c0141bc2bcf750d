"""Figures, bars and paths."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from flatout.report import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345.6, "12,346"), (99.96, "100"), (99.9, "99.9"), (9.996, "10.0"), (9.99, "9.99"), (0.0, "0.00")],
)
def test_figure(value: float, shown: str) -> None:
    assert text.figure(value) == shown


@pytest.mark.parametrize(("ms", "shown"), [(0.0, "0.00 ms"), (0.05, "50 µs"), (0.1, "0.10 ms"), (12_000.0, "12.0 s")])
def test_milliseconds(ms: float, shown: str) -> None:
    assert text.milliseconds(ms) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (99.94, "99.9 s"), (99.96, "1 min 40 s"), (3599.6, "1 h 00 min"), (86400, "24 h 00 min")],
)
def test_duration(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_something_small_is_never_nothing() -> None:
    assert text.percent(0.001) == "<1%"
    assert text.percent(0.0) == "0%"
    assert text.bar(1e-9, 10) == "▏"
    assert text.bar(0.0, 10) == ""


def test_a_bar_is_exact_to_an_eighth() -> None:
    assert text.bar(0.5, 10) == "█" * 5
    assert text.bar(0.5625, 2) == "█▏"
    assert text.bar(7.0, 3) == "███"


def test_paths_are_relative_and_cut_in_the_middle() -> None:
    assert text.place("/a/b/train.py", 3, 40, Path("/a")) == "b/train.py:3"
    assert text.place("/z/train.py", 3, 40, Path("/a")) == "/z/train.py:3"
    cut = text.shorten("some/very/long/folder/name/train.py", 20)
    assert len(cut) == 20 and cut.endswith("train.py") and cut.startswith("some") and "…" in cut


@pytest.mark.parametrize("cells", range(1, 12))
def test_a_path_never_takes_more_than_its_room(cells: int) -> None:
    assert len(text.shorten("folder/averylongfilename.py", cells)) <= cells


@pytest.mark.parametrize("room", [10, 30, 79])
def test_a_folded_command_is_the_same_to_the_shell(room: int) -> None:
    words = shlex.join(["flatout", "fix", "my train.py", "--name", "it's", "--out", "a/very/long/place/" * 2, "-x"])

    folded = text.fold_command(words, room, "  ")

    assert shlex.split(folded.replace("\\\n", " ")) == shlex.split(words)
    assert all(line.endswith(" \\") for line in folded.splitlines()[:-1])
    assert max(map(len, folded.splitlines())) <= max(room, 45)
