"""`flatout check` on real files: paths, settings, forms and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON

TRAIN = """\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(Images(), batch_size=32, num_workers=4, pin_memory=True)
model = torch.compile(Net().to("cuda"))
total = 0.0
for images, labels in loader:
    with torch.autocast("cuda"): loss = criterion(model(images.to("cuda", non_blocking=True)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""
CLEAN = TRAIN.replace("loss.item()", "loss.detach()")


def flatout_check(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatout", "check", *words]
    return subprocess.run(command, cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=200)


def test_findings_make_it_leave_with_1_and_none_with_0(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = flatout_check(tmp_path)
    assert done.returncode == 1 and done.stderr == ""
    assert "train.py:12:14: SY301" in done.stdout and "^^^^^^^^^^^" in done.stdout

    (tmp_path / "train.py").write_text(CLEAN)
    done = flatout_check(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (0, "Nothing found in 1 file.\n")


def test_a_hint_is_shown_once_a_file_and_makes_nothing_fail(tmp_path: Path) -> None:
    plain = CLEAN.replace("torch.compile(", "(").replace('with torch.autocast("cuda"): ', "")
    (tmp_path / "train.py").write_text(plain)

    done = flatout_check(tmp_path, "--format", "concise")

    assert done.returncode == 0
    first, last, *_ = done.stdout.splitlines()
    assert first.startswith("train.py:7:1: CO502") and last.startswith("1 finding")
    assert flatout_check(tmp_path, "--select", "CO509", "--format", "concise").stdout.startswith("train.py:7:1: CO509")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.py"], "flatout: no such file or folder: 'none.py'"),
        (["--select", "ZZ1", "."], "flatout: --select: no problem is called 'ZZ1'; `flatout explain` lists them"),
        (["notes.txt"], "flatout: 'notes.txt' is no Python file or notebook; give .py, .ipynb or a folder"),
        (["--format", "xml", "."], "flatout: Invalid value for '--format'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "notes.txt").write_text("x")

    done = flatout_check(tmp_path, *words)

    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(said)


def test_a_syntax_error_is_a_finding_and_a_binary_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\0\xff")

    done = flatout_check(tmp_path, "--format", "concise", "-v")

    assert done.returncode == 1
    assert done.stdout.startswith("bad.py:1:7: invalid-syntax")
    assert done.stderr == "flatout: binary.py: holds null bytes\n"


def test_settings_of_the_project_count_and_flags_beat_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "old").mkdir()
    (tmp_path / "old/train.py").write_text(TRAIN)
    settings = tmp_path / "pyproject.toml"

    settings.write_text('[tool.flatout]\nquiet = false\n[tool.flatout.check]\nignore = ["SY301"]\n')
    assert flatout_check(tmp_path).returncode == 0

    settings.write_text('[tool.flatout.check]\nexclude = ["old/"]\n')
    assert flatout_check(tmp_path).stdout.count(": SY301 ") == 1

    settings.write_text('[tool.flatout.check]\nselect = ["IN"]\n')
    assert flatout_check(tmp_path).returncode == 0
    assert flatout_check(tmp_path, "--select", "SY").returncode == 1

    settings.write_text("[tool.flatout.check]\nselect = 3\n")
    done = flatout_check(tmp_path)
    assert done.returncode == 2 and "check.select must be a list of text" in done.stderr


def test_every_form_tells_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    as_json = json.loads(flatout_check(tmp_path, "--json").stdout)
    as_sarif = json.loads(flatout_check(tmp_path, "--format", "sarif").stdout)
    as_github = flatout_check(tmp_path, "--format", "github").stdout

    assert [one["code"] for one in as_json["findings"]] == ["SY301"]
    assert [one["ruleId"] for one in as_sarif["runs"][0]["results"]] == ["SY301"]
    assert as_github.startswith("::warning file=train.py,line=12,")
    assert flatout_check(tmp_path, "--statistics").stdout.split()[:2] == ["1", "SY301"]
    assert flatout_check(tmp_path, "-q").stdout == ""


def test_notebooks_are_looked_at_cell_by_cell(tmp_path: Path) -> None:
    half = TRAIN.index("total =")
    cells = [
        {"cell_type": "markdown", "source": ["text"]},
        {"cell_type": "code", "source": ["%time\n", *TRAIN[:half].splitlines(keepends=True)]},
        {"cell_type": "code", "source": TRAIN[half:].splitlines(keepends=True)},
    ]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells}))

    done = flatout_check(tmp_path, "--format", "concise")

    assert done.stdout.startswith("train.ipynb:cell 3:7:14: SY301")


def test_a_default_in_another_file_is_found_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "options.py").write_text('parser.add_argument("--num-workers", type=int, default=0)\n')
    (tmp_path / "train.py").write_text("from options import args\n" + CLEAN.replace("=4", "=args.num_workers"))

    done = flatout_check(tmp_path, "--format", "concise")

    assert done.stdout.startswith("options.py:1:56: IN101")
