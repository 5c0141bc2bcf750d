"""Which files are looked at, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.source.project.loading import load
from flatout.source.syntax import files as gitignore
from flatout.source.syntax.files import decode_source, find_files
from flatout.source.syntax.notebook import parse_notebook


def made(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")


def shown(root: Path, *exclude: str) -> list[str]:
    return [str(path.relative_to(root)) for path, _ in find_files([root], exclude).code]


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    made(tmp_path, "a.py", "build/b.py", "sub/c.py", "sub/gen_d.py", "sub/kept/gen_e.py", "notes.txt", ".venv/f.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("# comment\n/build/\ngen_*.py\n")
    (tmp_path / "sub/kept/.gitignore").write_text("!gen_e.py\n")

    assert shown(tmp_path) == ["a.py", "sub/c.py", "sub/kept/gen_e.py"]
    assert shown(tmp_path, "sub/") == ["a.py"]


def test_a_folder_below_the_repository_heeds_what_stands_above(tmp_path: Path) -> None:
    made(tmp_path, "sub/a.py", "sub/b_old.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*_old.py\n")

    assert [path.name for path, _ in find_files([tmp_path / "sub"]).code] == ["a.py"]


def test_a_file_that_is_named_is_looked_at_in_any_case(tmp_path: Path) -> None:
    made(tmp_path, "a.py")
    (tmp_path / ".gitignore").write_text("a.py\n")

    assert [path.name for path, _ in find_files([tmp_path / "a.py"]).code] == ["a.py"]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    made(tmp_path, "a.py")
    (tmp_path / "round").symlink_to(tmp_path)

    assert shown(tmp_path) == ["a.py"]


def test_what_is_not_there_or_no_python_is_said(tmp_path: Path) -> None:
    made(tmp_path, "a.txt")
    with pytest.raises(FlatoutError, match="no such file or folder"):
        find_files([tmp_path / "none"])
    with pytest.raises(FlatoutError, match="no Python file"):
        find_files([tmp_path / "a.txt"])


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("*.py", "/r/a/b.py", True),
        ("/b.py", "/r/a/b.py", False),
        ("a/**/c.py", "/r/a/x/y/c.py", True),
        ("**/y", "/r/a/x/y", True),
        ("a/*.py", "/r/a/x/c.py", False),
        ("[ab].py", "/r/a.py", True),
        ("[!ab].py", "/r/a.py", False),
        ("x[.py", "/r/x.py", False),
    ],
)
def test_patterns_are_those_of_git(pattern: str, path: str, ignored: bool) -> None:
    rules = gitignore.parse_patterns([pattern], Path("/r"))

    assert gitignore.is_ignored(path, False, rules) is ignored


def test_declared_encodings_are_read_and_others_refused() -> None:
    assert decode_source("# coding: latin-1\nx = 'é'\n".encode("latin-1")).endswith("'é'\n")
    assert decode_source(b"\xef\xbb\xbfx = 1\r\n") == "x = 1\n"
    for data in (b"x = '\xff'\n", b"a\0b", b"# coding: nonsense\n"):
        with pytest.raises(FlatoutError):
            decode_source(data)


def test_code_cells_become_one_text_and_lines_find_their_way_back() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n", "if x:\n", "    !ls\n"]},
        {"cell_type": "code", "source": "%%bash\nrm -r x"},
        {"cell_type": "code", "source": "y = 1"},
    ]

    read = parse_notebook(json.dumps({"cells": cells}))

    assert read.text == "pass\nimport torch\nif x:\n    pass\n\n\n\ny = 1\n"
    assert read.place(2) == (2, 2) and read.place(8) == (4, 1)


def test_broken_files_leave_a_line_each_and_the_others_are_read(tmp_path: Path) -> None:
    made(tmp_path, "good.py")
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "nb.ipynb").write_text("{}")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)

    project = load([tmp_path])

    assert [Path(line.partition(":")[0]).name for line in project.trouble] == ["latin.py", "nb.ipynb"]
    errors = {Path(module.shown).name: module.error for module in project.modules}
    assert errors["good.py"] is None and errors["wrong.py"] is not None and errors["deep.py"] is not None
