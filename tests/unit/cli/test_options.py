"""Flags beat the environment, which beats flatout.toml, which beats pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.cli.options import resolve
from flatout.errors import FlatoutError


def test_the_strongest_source_wins(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.flatout]\ninterval = 1\nname = "p"\nlive = true\nquiet = true\n')
    (tmp_path / "flatout.toml").write_text('interval = 2.0\nname = "t"\nlive = false\n')
    environ = {"FLATOUT_INTERVAL": "3", "FLATOUT_NAME": "e"}

    found = resolve({"interval": 4.0, "name": None}, environ, tmp_path)

    assert found == {"interval": 4.0, "name": "e", "live": False, "quiet": True}


def test_files_are_found_above_within_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "flatout.toml").write_text('name = "outside"')
    (tmp_path / "repo" / ".git").mkdir()
    assert resolve({}, {}, inner) == {}

    (tmp_path / "repo" / "flatout.toml").write_text('name = "inside"')
    assert resolve({}, {}, inner) == {"name": "inside"}


def test_a_path_in_a_file_is_meant_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "flatout.toml").write_text('out = "runs/x"\njson = "-"\npython = "python3"\n')
    (tmp_path / "sub").mkdir()

    assert resolve({}, {}, tmp_path / "sub") == {"out": str(tmp_path / "runs/x"), "json": "-", "python": "python3"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("intervall = 1", "unknown key 'intervall'"),
        ('interval = "fast"', "interval must be a number, got 'fast'"),
        ("quiet = 1", "quiet must be true or false, got 1"),
        ("interval = true", "interval must be a number, got True"),
        ("quiet =", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_key(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "flatout.toml").write_text(text)

    with pytest.raises(FlatoutError) as error:
        resolve({}, {}, tmp_path)

    assert words in str(error.value) and str(tmp_path / "flatout.toml") in str(error.value)


def test_a_wrong_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="FLATOUT_INTERVAL must be a number, got 'x'"):
        resolve({}, {"FLATOUT_INTERVAL": "x"}, tmp_path)
    with pytest.raises(FlatoutError, match="FLATOUT_LIVE must be true or false, got 'maybe'"):
        resolve({}, {"FLATOUT_LIVE": "maybe"}, tmp_path)
    assert resolve({}, {"FLATOUT_LIVE": "yes", "FLATOUT_TELEMETRY": "0"}, tmp_path) == {
        "live": True,
        "telemetry": False,
    }
