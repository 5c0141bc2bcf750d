"""The table of stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout import cli
from tests.unit.making import Making


def test_a_script_s_name_is_neither_markup_nor_an_escape_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Making(tmp_path, ("a[red]\x1b[2J.py",)).stored()

    assert cli._exit_code(["runs", "--root", str(tmp_path)]) == 0

    said = capsys.readouterr().out
    assert "a[red]?[2J.py" in said and "\x1b" not in said
