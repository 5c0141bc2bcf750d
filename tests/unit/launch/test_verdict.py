"""Why nothing was seen, and what a run is called."""

from __future__ import annotations

import pytest

from flatout.app.run import run_name
from flatout.launch.verdict import explain_no_step
from flatout.words import english


@pytest.mark.parametrize(
    ("argv", "recordings", "words"),
    [
        (["/usr/bin/python3", "-S", "x.py"], 0, "started with -S"),
        (["python", "-uI", "x.py"], 0, "started with -I"),
        (["python", "-X", "importtime", "x.py"], 0, "no Python process"),
        (["python", "x.py", "-S"], 0, "no Python process"),
        (["echo", "-S"], 0, "no Python process"),
        (["python", "-S", "x.py"], 1, "no optimizer made a step"),
    ],
)
def test_the_reason_is_the_likeliest(argv: list[str], recordings: int, words: str) -> None:
    assert words in english(explain_no_step(argv, recordings))


@pytest.mark.parametrize(
    ("cmd", "wished", "name"),
    [
        (["a/train.py", "x"], None, "a/train.py"),
        (["-m", "pkg.train"], None, "pkg-train"),
        (["-mpkg.train"], None, "pkg-train"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], None, "train.py"),
        (["-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"], None, "train.py"),
        (["-m", "pkg.train", "--config", "small.py"], None, "pkg-train"),
        (["console"], None, "console"),
        (["train.py"], "v1.2", "v1-2"),
    ],
)
def test_a_run_has_the_scripts_name(cmd: list[str], wished: str | None, name: str) -> None:
    assert run_name(cmd, wished) == name
