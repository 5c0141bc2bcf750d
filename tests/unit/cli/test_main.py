"""The group: verbs by file, one line for every mistake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout import cli
from tests.unit.making import Making

_SRC = Path(cli.__file__).parents[2]


def _flatout(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(_SRC)}
    return subprocess.run(
        [sys.executable, "-m", "flatout", *words], cwd=cwd, env=environ, capture_output=True, text=True
    )


def _shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(_SRC)}
    return subprocess.run(line, shell=True, cwd=cwd, env=environ, capture_output=True, text=True)


def test_help_lists_the_verbs_without_importing_them(tmp_path: Path) -> None:
    code = "import sys, flatout.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "print([m for m in sys.modules if m.startswith('flatout.cli.') or m in ('torch', 'rich', 'numpy', 'psutil')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(_SRC)}, capture_output=True, text=True
    )

    assert "run " in done.stdout and "doctor" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.timing
def test_help_is_quick() -> None:
    best = min(_seconds_for("--help") for _ in range(3))

    assert best < 0.3


def _seconds_for(*words: str) -> float:
    began = time.perf_counter()
    _flatout(*words)
    return time.perf_counter() - began


@pytest.mark.timing
def test_import_is_quick_and_pulls_no_torch() -> None:
    code = (
        "import sys, time; t = time.perf_counter(); import flatout; "
        "print(time.perf_counter() - t < 0.05, 'torch' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(_SRC)}, capture_output=True, text=True
    )

    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nonsense"], "flatout: No such command 'nonsense' (see flatout --help)"),
        (["run", "--nonsense", "train.py"], "flatout: No such option"),
        (["run"], "flatout: Missing argument 'CMD [ARGS]...' (see flatout run --help)"),
        (["run", "missing.py"], "flatout: no such script: 'missing.py' (looked in {cwd!r})"),
        (["run", "--steps", "0", "x.py"], "flatout: --steps must be a whole number above 0, got '0'"),
        (["run", "--steps", "1.5", "x.py"], "flatout: --steps must be a whole number above 0, got '1.5'"),
        (["run", "--for", "soon", "x.py"], "flatout: --for 'soon' is no time: write 90s, 10m or 1h"),
        (["run", "--interval", "0", "x.py"], "flatout: --interval must be between 0.01 and 3600 seconds, got 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], line: str, tmp_path: Path) -> None:
    done = _flatout(*words, cwd=tmp_path)

    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith(line.format(cwd=str(tmp_path)))
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_verb_that_cannot_be_imported_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine.py").write_text("this is no python")
    monkeypatch.setattr(cli, "_FOLDER", tmp_path)
    monkeypatch.setitem(sys.modules, "flatout.cli.machine", None)

    assert cli._exit_code(["--help"]) == 0
    assert cli._exit_code(["doctor"]) == 2


def test_version() -> None:
    assert _flatout("-V").stdout.startswith("flatout, version ")
    assert _flatout("--version").returncode == 0


def test_completion_offers_verbs_and_options() -> None:
    environ = {**os.environ, "PYTHONPATH": str(_SRC), "_FLATOUT_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "flatout"],
        env={**environ, "COMP_WORDS": "flatout run --te", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
    )

    assert "--telemetry" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["explain"], ["runs"], ["memory", "--sample-bytes", "1MB"]])
def test_output_that_finds_no_room_is_one_line_and_exit_code_2(words: list[str], tmp_path: Path) -> None:
    done = _shell(f"{sys.executable} -m flatout {' '.join(words)} > /dev/full", tmp_path)

    assert done.returncode == 2
    assert done.stderr == "flatout: No space left on device\n"


@pytest.mark.parametrize("words", [["runs"], ["memory", "--sample-bytes", "1MB"], ["check", "--diff"]])
def test_a_closed_stdout_disturbs_no_verb(words: list[str], tmp_path: Path) -> None:
    done = _shell(f"{sys.executable} -m flatout {' '.join(words)} >&-", tmp_path)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_signs_that_the_terminal_does_not_know_are_replaced(tmp_path: Path) -> None:
    Making(tmp_path).stored()
    ascii_only = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"

    done = _shell(f"{ascii_only} {sys.executable} -m flatout runs --root .", tmp_path)

    assert done.returncode == 0
    assert done.stdout.isascii() and "?" in done.stdout


def test_a_folder_that_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = _flatout("doctor", "--json", "missing/x.json", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "flatout: --json 'missing/x.json' cannot be written: there is no such folder"
