"""What is started, with which environment, for each way of naming a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.launch.process import BOOTSTRAP, child_environment, command_line


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print('hi')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_bare_script_gets_our_interpreter_and_its_arguments_untouched() -> None:
    odd = ["--lr", "1e-3", "a b", "c\nd", os.fsdecode(b"\xff\xfe"), "--", "-m"]

    assert command_line(["train.py", *odd]) == [sys.executable, "train.py", *odd]


def test_a_module_gets_our_interpreter() -> None:
    assert command_line(["-m", "pkg.train", "-x"]) == [sys.executable, "-m", "pkg.train", "-x"]
    assert command_line(["-mpkg.train"]) == [sys.executable, "-mpkg.train"]


def test_python_chooses_the_interpreter(folder: Path) -> None:
    other = folder / "python9"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)

    assert command_line(["train.py"], str(other)) == [str(other), "train.py"]


def test_a_command_on_path_is_started_by_its_name() -> None:
    assert command_line(["env", "python", "-u", "train.py"]) == ["env", "python", "-u", "train.py"]


def test_a_command_beside_the_interpreter_is_found_without_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (folder / "bin").mkdir()
    for name in ("python", "torchrun"):
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)

    assert command_line(["torchrun", "x.py"], str(folder / "bin" / "python")) == [
        str(folder / "bin" / "torchrun"),
        "x.py",
    ]


def test_a_script_without_suffix_is_run_by_python_unless_it_is_executable(folder: Path) -> None:
    (folder / "train").write_text("print(1)")
    assert command_line(["./train"]) == [sys.executable, "./train"]

    (folder / "train").chmod(0o755)
    assert command_line(["./train"]) == ["./train"]


@pytest.mark.parametrize(
    ("cmd", "python", "words"),
    [
        (["trian.py"], None, "no such script: 'trian.py'"),
        (["no-such-command"], None, "'no-such-command' is neither a script here nor a command on PATH"),
        (["-m"], None, "-m needs the name of a module"),
        (["train.py"], "/no/python", "--python '/no/python' is no interpreter"),
    ],
)
def test_what_cannot_start_is_named(cmd: list[str], python: str | None, words: str) -> None:
    with pytest.raises(FlatoutError, match=words):
        command_line(cmd, python)


def test_the_environment_is_the_users_plus_ours() -> None:
    environ = {"PYTHONPATH": "/a:/b", "HOME": "/h", "X": os.fsdecode(b"\xff")}

    result = child_environment(environ, Path("/runs/1"), {"lines_hz": 0.0})

    assert result == {
        "PYTHONPATH": f"{BOOTSTRAP}:/a:/b",
        "HOME": "/h",
        "X": os.fsdecode(b"\xff"),
        "FLATOUT_RUN_DIR": "/runs/1",
        "FLATOUT_SETTINGS": '{"lines_hz": 0.0}',
    }


@pytest.mark.parametrize("environ", [{}, {"PYTHONPATH": ""}])
def test_an_empty_pythonpath_does_not_put_the_working_directory_on_the_path(environ: dict[str, str]) -> None:
    assert child_environment(environ, Path("/runs/1"), {}) == {
        "PYTHONPATH": str(BOOTSTRAP),
        "FLATOUT_RUN_DIR": "/runs/1",
    }
