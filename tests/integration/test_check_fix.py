"""`flatout check --fix` and `--diff` on real files: the fixed scripts run and compute what they did before."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON

SCRIPT = '''\
"""Learns a line."""
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, at):
        x = torch.tensor([float(at), 1.0]) / 32
        return x, x.sum().reshape(1)


def main():
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        Points(),
        batch_size=8,  # four steps
        {loader}
    )
    {before}
    total, losses = 0.0, []
    for step, (x, y) in enumerate(loader):
        x, y = x.{move}, y.{move}
        {around}
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        {each}
        if step % 2 == 0:
            print(f"step {{step}} {{loss.item():.5f}} {{total:.4f}}")
    print(len(losses), f"{{sum(losses):.4f}} {{total / len(loader):.4f}}")


if __name__ == "__main__":
    main()
'''
HEALTHY = {
    "loader": "num_workers=1, pin_memory=True,",
    "before": "model.train()",
    "move": "to(device, non_blocking=True)",
    "around": "if True:",
    "each": "total += loss.detach()",
}
KINDS = {
    "TR201": {"loader": "num_workers=1,"},
    "TR204": {"move": "to(device)"},
    "IN101": {"loader": "pin_memory=True,"},
    "SY301": {"each": "total += loss.item() * 2  # weighted"},
    "SY303": {"each": "if torch.cuda.is_available():\n            torch.cuda.synchronize()"},
    "HO404": {"each": "if step >= 0:\n            gc.collect()\n            torch.cuda.empty_cache()"},
    "HO405": {"around": "with torch.autograd.detect_anomaly():"},
    "ME701": {"each": "losses.append(loss)"},
}
SAFE = ("TR201", "TR204")
ALL = ",".join(KINDS)


def script(*codes: str) -> str:
    parts = dict(HEALTHY)
    for code in codes:
        parts |= KINDS[code]
    return SCRIPT.format(**parts)


def flatout_check(cwd: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "flatout", "check", *words]
    return subprocess.run(command, cwd=cwd, env=ENVIRON, capture_output=True, timeout=200)


def printed_by(file: Path) -> str:
    """In this process: torch is here already, and takes seconds to import."""
    import torch

    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(file), run_name="__main__")
    torch.autograd.set_detect_anomaly(False)
    return said.getvalue()


@pytest.mark.parametrize("code", KINDS)
def test_a_fixed_script_prints_the_same_and_is_clean(tmp_path: Path, code: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(script(code))
    before = printed_by(file)
    assert before.count("step") == 2

    unsafe = [] if code in SAFE else ["--unsafe-fixes"]
    done = flatout_check(tmp_path, "--select", code, "--fix", *unsafe)

    assert (done.returncode, done.stderr) == (0, b""), done
    assert re.fullmatch(rb"\d fixed in 1 file\.\nNothing left in 1 file\.\n", done.stdout)
    assert printed_by(file) == before
    written = file.read_bytes()
    # Once is enough.
    again = flatout_check(tmp_path, "--select", code, "--fix", "--unsafe-fixes")
    assert (again.returncode, again.stdout) == (0, b"Nothing found in 1 file.\n")
    assert file.read_bytes() == written


def test_unsafe_fixes_wait_to_be_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(script("TR204", "SY301"))

    done = flatout_check(tmp_path, "--select", ALL, "--fix", "--format", "concise")

    assert done.returncode == 1
    assert b"SY301 [~] " in done.stdout and b"TR204" not in done.stdout
    assert done.stdout.endswith(
        b"1 fixed in 1 file.\n1 finding left in 1 file. Run `flatout explain CODE` for details.\n"
        b"[~] 1 fixable with --fix --unsafe-fixes.\n"
    )
    assert file.read_text() == script("SY301")
    assert flatout_check(tmp_path, "--unsafe-fixes").returncode == 2


@pytest.mark.parametrize("tool", [["patch", "-p1", "--binary"], ["git", "apply"]])
def test_the_diff_makes_what_fix_writes(tmp_path: Path, tool: list[str]) -> None:
    folders = tmp_path / "fixed", tmp_path / "patched"
    for folder in folders:
        (folder / "a b").mkdir(parents=True)
        (folder / "train.py").write_bytes(b"\xef\xbb\xbf" + script("TR204", "HO404").replace("\n", "\r\n").encode())
        latin = "# coding: latin-1\n" + script("SY301").replace("weighted", "größer")
        (folder / "a b/other.py").write_bytes(latin.rstrip("\n").encode("latin-1"))
        (folder / "a b/none.py").write_text("x = 1\n")
    words = ["--select", ALL, "--unsafe-fixes"]

    would = flatout_check(folders[1], *words, "--diff")
    assert would.returncode == 1 and b"fixed in 2 files" in would.stderr
    assert flatout_check(folders[0], *words, "--fix", "-q").returncode == 0
    before = {one: one.read_bytes() for one in folders[1].rglob("*.py")}
    (tmp_path / "diff").write_bytes(would.stdout)
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    given = subprocess.run(
        [*tool, *(["-i"] if tool[0] == "patch" else []), str(tmp_path / "diff")],
        cwd=folders[1],
        env=environ,
        capture_output=True,
    )

    assert given.returncode == 0, given
    for file, data in before.items():
        twin = folders[0] / file.relative_to(folders[1])
        assert file.read_bytes() == twin.read_bytes()
        assert (file.read_bytes() != data) == (file.name != "none.py")
    again = flatout_check(folders[0], *words, "--diff")
    assert (again.returncode, again.stdout) == (0, b"")


def test_the_diff_says_what_it_leaves_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    text = script("TR204", "SY303")
    text = text.replace("        if step % 2", "        print(loss.item())\n        if step % 2")
    file.write_text(text)

    done = flatout_check(tmp_path, "--select", ALL, "--diff")

    assert done.returncode == 1 and file.read_text() == text
    assert done.stdout.startswith(b"--- a/train.py\n+++ b/train.py\n@@ ")
    words = done.stderr.decode()
    assert words.startswith("1 would be fixed in 1 file.\nFixed only with --unsafe-fixes, ")
    assert "SY303" in words and words.index("To be fixed by hand:") < words.index("SY301")


def test_a_notebook_is_fixed_in_its_cells(tmp_path: Path) -> None:
    source = script("TR204").replace("\nif __name__", "\n%time\nif __name__")
    half = source.index("def main")
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["größer"]},
        {"cell_type": "code", "outputs": [1.50], "source": source[:half].splitlines(keepends=True)},
        {"cell_type": "code", "source": source[half:].rstrip("\n").splitlines(keepends=True)},
    ]
    whole = json.dumps({"cells": cells, "nbformat": 4}, indent=1, ensure_ascii=False) + "\n"
    (tmp_path / "train.ipynb").write_text(whole)

    done = flatout_check(tmp_path, "--select", "TR204", "--fix")

    assert done.returncode == 0, done
    assert (tmp_path / "train.ipynb").read_text() == whole.replace(
        "to(device)", "to(device, non_blocking=True)"
    ).replace("Linear(2, 1).to(device, non_blocking=True)", "Linear(2, 1).to(device)")


def test_a_default_and_a_config_are_fixed_where_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "options.py").write_text('parser.add_argument("--num-workers", type=int, default=0)\n')
    (tmp_path / "config.yaml").write_bytes(b"data:\r\n  pin_memory: false  # why\r\n  size: 3\r\n")
    text = "from options import args\n" + script("TR201")
    loader = "num_workers=args.num_workers, pin_memory=cfg['data']['pin_memory'],"
    (tmp_path / "train.py").write_text(text.replace("num_workers=1,", loader))

    done = flatout_check(tmp_path, "--select", ALL, "--fix", "--unsafe-fixes")

    assert done.returncode == 0, done
    assert b"2 fixed in 2 files." in done.stdout
    assert (tmp_path / "options.py").read_text().endswith("default=4)\n")
    assert (tmp_path / "config.yaml").read_bytes() == b"data:\r\n  pin_memory: true  # why\r\n  size: 3\r\n"


def test_what_cannot_be_fixed_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = flatout_check(tmp_path, "--fix", "pipe")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"flatout: 'pipe' cannot be written back; --fix and --diff take files and folders\n"

    (tmp_path / "train.py").write_bytes(b"# coding: hz\n# ~{~}\n" + script("TR204").encode())
    done = flatout_check(tmp_path, "--select", "TR204", "--fix", "train.py")
    assert done.returncode == 1 and b"TR204 [*]" in done.stdout
    assert done.stderr == (
        b"flatout: train.py: cannot be edited without changing more of it than the fix; it is left as it is\n"
    )
