"""Which programs write to the user's files, and how Python ones are kept from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flatout.attach.trial.sandbox.subprocesses import add_bootstrap, find_uncontained_program


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([sys.executable, "eval.py"], None),
        (["python3.12", "-u", "-m", "eval", "-S"], None),
        (["python", "-I", "eval.py"], "python without site packages"),
        (["nvidia-smi", "-L"], None),
        (["ffmpeg", "-i", "in.mp4", "out.mp4"], "ffmpeg"),
        (["/bin/sh", "-c", "ffmpeg -i in.mp4 out.mp4"], "ffmpeg"),
        (["/bin/sh", "-c", "echo 1 > log.txt"], "sh"),
        (["/bin/sh", "-c", "nvidia-smi -L"], None),
        ([], None),
    ],
)
def test_names(words: list[str], name: str | None) -> None:
    assert find_uncontained_program(words) == name


def test_a_script_in_python_is_contained(tmp_path: Path) -> None:
    script = tmp_path / "evaluate"
    script.write_text("#!/usr/bin/env python\n")
    script.chmod(0o755)

    assert find_uncontained_program([str(script)]) is None


def test_a_new_environment_is_given_what_contains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLATOUT_TRIAL", "{}")

    made = dict(entry.split(b"=", 1) for entry in add_bootstrap([b"A=1", b"PYTHONPATH=/own"]))

    assert made[b"A"] == b"1" and made[b"FLATOUT_TRIAL"] == b"{}"
    bootstrap, own = made[b"PYTHONPATH"].split(b":")
    assert bootstrap.endswith(b"attach/bootstrap") and own == b"/own"
    assert dict(add_bootstrap({"A": "1", "PYTHONPATH": "/own"})) == made
    assert add_bootstrap(None) is None
