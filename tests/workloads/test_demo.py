"""`flatout demo`: a bundled workload from its data to the verdict, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.app.demo import WORKLOADS
from tests.workloads.projects import WORKLOADS as FOLDER
from tests.workloads.projects import Ended, start


def demo(*arguments: str | Path, **environment: str) -> Ended:
    return start("-m", "flatout", "demo", *arguments, **environment)


def on_a_terminal(cwd: Path, *arguments: str | Path) -> tuple[int, str]:
    """The exit code, and all that went over the screen."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flatout", "demo", *map(str, arguments)]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    with subprocess.Popen(command, cwd=cwd, env=environ, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
    os.close(ours)
    return process.returncode, seen.decode()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    here = tmp_path_factory.mktemp("demo")
    code, screen = on_a_terminal(
        here, "--no-fix", "--size", "tiny", "--data", here / "data", "--json", here / "report.json"
    )
    assert code == 0, screen
    return screen, json.loads((here / "report.json").read_text())


def test_the_default_demo_ends_with_the_verdict_and_what_to_try(shown: tuple[str, dict[str, Any]]) -> None:
    screen, report = shown

    assert report["verdict"]["bound"] == "input"
    assert screen.index("gray_cnn: ") < screen.index("INPUT-BOUND") < screen.index("Try next")
    assert f" Next        {report['next'][:60]}" in screen and report["next"].startswith("flatout fix ")
    assert "flatout fix train.py" in screen
    # What the training script printed is not what a demo is about.
    assert "epoch 1" not in screen


def test_a_bar_shows_how_far_it_is(shown: tuple[str, dict[str, Any]]) -> None:
    screen, _ = shown

    assert f"/{WORKLOADS[0].steps['tiny']}" in screen
    assert "training" in screen and "samples/s" in screen and "━" in screen


def test_it_takes_less_than_a_minute_without_a_gpu(shown: tuple[str, dict[str, Any]]) -> None:
    _, report = shown

    assert report["run"]["wall_s"] < 45
    assert report["run"]["steps"] == WORKLOADS[0].steps["tiny"]


def test_the_list_tells_every_story_in_two_lines() -> None:
    ended = demo("--list")

    blocks = ended.out.strip().split("\n\n")
    assert [block.split(":")[0].strip() for block in blocks] == [workload.name for workload in WORKLOADS]
    for block in blocks:
        assert len(block.splitlines()) == 3
        assert all(20 < len(line) <= 120 for line in block.splitlines())


def test_every_project_of_the_folder_can_be_shown() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/train.py")}

    assert folders == {workload.name for workload in WORKLOADS}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mnist"], "no workload is called 'mnist'"),
        (["--size", "huge"], "--size must be tiny or full, got 'huge'"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str) -> None:
    ended = demo(*arguments)

    assert ended.code == 2
    assert words in ended.err and len(ended.err.splitlines()) == 1


def test_a_workload_that_fails_shows_the_end_of_what_it_printed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("a file where the folder should be")

    ended = demo("--size", "tiny", "--data", data)

    assert ended.code == 2
    assert "gray_cnn failed with exit code" in ended.err and "Traceback" not in ended.err
