"""Runs training scripts as a user would, in real child processes, bare and under `flatout run`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.integration.watching import LIMIT_S, Ran, Run, Watch, Watched, environment, words


@pytest.fixture(scope="session")
def run_bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run_bare("train.py", …)` or `run_bare("torchrun", …)`: the same command without flatout."""

    def run(*args: str | Path, cwd: Path | None = None, **env: str) -> Ran:
        command = words(args)
        if command[0].endswith(".py") or command[0] == "-m":
            command = [sys.executable, *command]
        cwd = cwd or tmp_path_factory.mktemp("bare")
        done = subprocess.run(
            command, cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        return Ran(done.stdout, done.stderr, done.returncode)

    return run


@pytest.fixture(scope="session")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """`watch("train.py", …)`: run it under flatout and read the report and the stored run."""

    def run(*args: str | Path, cwd: Path | None = None, options: Sequence[str] = (), **env: str) -> Watched:
        cwd = cwd or tmp_path_factory.mktemp("watched")
        out, report = cwd / "flatout-run", cwd / "report.json"
        command = [sys.executable, "-m", "flatout", "run", "--json", str(report), "--out", str(out), *options]
        done = subprocess.run(
            [*command, "--", *words(args)],
            cwd=cwd,
            env=environment(env),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert report.exists(), f"no report was written\n{done.stderr}\n{done.stdout}"
        return Watched(done.stdout, done.stderr, done.returncode, json.loads(report.read_text()), out)

    return run


@pytest.fixture(scope="session")
def bare_once(run_bare: Run) -> Run:
    """As `run_bare`, for a command that several tests look at: it runs once."""
    return cache(run_bare)


@pytest.fixture(scope="session")
def watch_once(watch: Watch) -> Watch:
    """As `watch`, for a command that several tests look at."""
    return cache(watch)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Write a script, and tell where it is."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write
