"""Edits put into texts, files and notebooks: everything else stays byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.records.source import Edit, Place
from flatout.source.syntax.edits import Change, Text, add_import, apply_changes, has_conflict, shift_place
from flatout.source.syntax.files import encode_texts, read_texts, read_writable, replace_file, soundness
from flatout.source.syntax.module import Module
from flatout.source.syntax.notebook import cell_sources, replace_cell_sources


def put(line: int, column: int, text: str, end_line: int = 0, end_column: int = 0) -> Edit:
    return Edit(Place("f.py", line, column, end_line, end_column), text)


def edited(text: str, *edits: Edit) -> str:
    whole = Text(text)
    return apply_changes(text, [whole.change(edit) for edit in edits])


def test_lines_end_as_those_around_them() -> None:
    assert edited("a\r\nb\r\n", put(1, 2, "\nx")) == "a\r\nx\r\nb\r\n"
    assert edited("a\rb\r", put(2, 1, "x\n")) == "a\rx\rb\r"
    # A form feed, and what only Unicode takes for an end, stand within a line.
    assert edited("a\f\u2028b = 1\nc", put(1, 8, "2", 1, 9)) == "a\f\u2028b = 2\nc"


def test_all_are_applied_from_the_end_on() -> None:
    assert edited("one two three\n", put(1, 1, "1", 1, 4), put(1, 9, "3", 1, 14), put(1, 5, "2", 1, 8)) == "1 2 3\n"


def test_the_last_line_goes_with_the_end_of_the_one_before() -> None:
    assert edited("a\nb", put(2, 1, "", 3, 1)) == "a"
    assert edited("a\r\nb", put(2, 1, "", 3, 1)) == "a"
    assert edited("a\nb\n", put(2, 1, "", 3, 1)) == "a\n"


@pytest.mark.parametrize("edit", [put(9, 1, "x"), put(1, 9, "x"), put(1, 2, "x", 1, 1)])
def test_a_place_that_is_not_there_is_an_error(edit: Edit) -> None:
    with pytest.raises(FlatoutError, match="no line"):
        Text("ab\n").change(edit)


def test_what_touches_the_same_text_clashes() -> None:
    assert has_conflict(Change(1, 3, ""), Change(2, 4, "")) and has_conflict(Change(5, 5, "a"), Change(5, 5, "b"))
    assert not has_conflict(Change(1, 3, ""), Change(3, 5, "")) and not has_conflict(
        Change(1, 3, ""), Change(3, 3, "x")
    )


def test_a_place_is_found_again() -> None:
    text = Text("import a\nx = f(1)\ny = g(2)\n")
    changes = [text.change(put(1, 9, "\nimport b")), text.change(put(2, 7, "10, 20", 2, 8))]

    assert shift_place(text, changes, Place("f.py", 3, 5)) == (4, 5)
    assert shift_place(text, changes, Place("f.py", 2, 5)) == (3, 5)
    assert shift_place(text, changes, Place("f.py", 2, 7)) == (3, 7)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.py", b"\xef\xbb\xbfx = 1\r\ny = 2"),
        ("a.py", b"# coding: latin-1\nx = 1  # \xe9\n"),
        ("a.py", b"# coding: cp1252\r\nx = '\x80'\r\n"),
        ("a.yaml", "größe: 1\r\nb: 2".encode()),
    ],
)
def test_bytes_come_back_as_they_were(name: str, data: bytes) -> None:
    (text,) = read_texts(name, data).values()

    assert encode_texts(name, data, {None: text}) == data
    assert encode_texts(name, data, {None: text.replace("1", "7")}) == data.replace(b"1", b"7")


def test_what_would_come_back_otherwise_is_left_alone() -> None:
    with pytest.raises(FlatoutError, match="without changing more"):
        read_texts("a.py", b"# coding: utf-7\nx = '+AGE-'\n")
    with pytest.raises(FlatoutError, match="encoding"):
        encode_texts("a.py", b"# coding: ascii\nx = 1\n", {None: "x = 'ä'\n"})


NOTEBOOK = """\
{
  "cells": [
    {"cell_type": "markdown", "source": "# \\u00fc"},
    {
      "cell_type": "code",
      "outputs": [{"text": ["1.0e5", "\\u2028"], "n": 1.00}],
      "source": [
        "a = '\\u00e9'\\n",
        "b = 2"
      ]
    },
    { "source": "c = 3\\n", "cell_type": "code" }
  ], "nbformat": 4
}
"""


def test_a_notebook_keeps_all_but_the_changed_lines() -> None:
    assert cell_sources(NOTEBOOK) == {1: "# ü", 2: "a = 'é'\nb = 2", 3: "c = 3\n"}

    after = replace_cell_sources(NOTEBOOK, {2: "a = 'é'\nb = 7\nx = 'ü'", 3: "c = 4\n"})

    lines = '        "a = \'\\u00e9\'\\n",\n        "b = 7\\n",\n        "x = \'\\u00fc\'"\n'
    old = '        "a = \'\\u00e9\'\\n",\n        "b = 2"\n'
    assert after == NOTEBOOK.replace(old, lines).replace("c = 3", "c = 4")
    assert replace_cell_sources(NOTEBOOK, cell_sources(NOTEBOOK)) == NOTEBOOK


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("only_ascii", [True, False])
def test_a_notebook_is_written_as_it_was(indent: int | None, only_ascii: bool) -> None:
    def written(source: list[str]) -> str:
        cells = [{"cell_type": "code", "source": ["ü\n"]}, {"cell_type": "code", "source": source}]
        return json.dumps({"cells": cells}, indent=indent, ensure_ascii=only_ascii)

    before = written(["x = 1\n", "y = 2\n"])

    assert replace_cell_sources(before, {2: "x = 1\ny = 2\nz = 'ä'\n"}) == written(["x = 1\n", "y = 2\n", "z = 'ä'\n"])
    assert replace_cell_sources(before, {2: ""}) == written([])
    with pytest.raises(FlatoutError):
        cell_sources("{")


def test_sound_is_what_parses_and_better_what_compiles() -> None:
    assert soundness("a.py", b"f(a=1)\n") == 2
    assert soundness("a.py", b"f(a=1, a=2)\n") < 2
    assert soundness("a.py", b"f(\n") == 0
    assert soundness("a.yaml", b"a: 1\n") == 1 and soundness("a.json", b"{") == 0


def test_a_file_is_written_through_its_link_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_bytes(b"a")
    real.chmod(0o741)
    link.symlink_to(real)

    replace_file(str(link), b"a", b"b")

    assert link.is_symlink() and real.read_bytes() == b"b" and real.stat().st_mode & 0o777 == 0o741
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.py", "real.py"]


def test_a_file_that_was_changed_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"theirs")

    with pytest.raises(FlatoutError, match="meanwhile"):
        replace_file(str(file), b"ours", b"new")
    assert file.read_bytes() == b"theirs" and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_cannot_be_had_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="cannot be read"):
        read_writable(str(tmp_path / "none.py"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    (tmp_path / "a.py").chmod(0o444)

    with pytest.raises(FlatoutError, match="no permission"):
        read_writable(str(tmp_path / "a.py"))


@pytest.mark.parametrize(
    ("before", "statement", "line"),
    [
        ("x = 1\n", "import torch", 1),
        ("#!/bin/x\n# -*- coding: utf-8 -*-\n@f\ndef g(): ...\n", "import torch", 3),
        ('"""Doc."""\nx = 1\n', "import torch", 2),
        ('"""Doc."""\n', "import torch", 2),
        ("from __future__ import annotations\nx = 1", "import a", 2),
        ("import os\nimport torch  # it\nimport z\n", "from torch import nn", 3),
        ("import os\nx = 1\n", "import gc", 2),
    ],
)
def test_an_import_goes_among_the_others(before: str, statement: str, line: int) -> None:
    found = add_import(Module("f.py", "f", before), statement)

    assert isinstance(found, Edit)
    lines = before.split("\n")
    assert edited(before, found) == "\n".join([*lines[: line - 1], statement, *lines[line - 1 :]])


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("import torch\n", "import torch"),
        ("import torch.nn\n", "import torch"),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", "import torch"),
        ("from torch import nn, optim\n", "from torch import nn"),
    ],
)
def test_an_import_that_is_there_is_not_repeated(text: str, statement: str) -> None:
    assert add_import(Module("f.py", "f", text), statement) == ()


@pytest.mark.parametrize(
    "text", ["torch = None\n", "def f(torch): ...\n", "import numpy as torch\n", "class torch: ...\n"]
)
def test_a_name_that_means_something_else_is_left_alone(text: str) -> None:
    assert add_import(Module("f.py", "f", text), "import torch") is None
