"""A contained script in a real process: it finds all that it wrote, and the user's files are as they were."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.integration.experiment.containing import SCRIPTS, environment, run_contained, tree


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder of a user who has trained before."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in ("results/deep", "data", "logs", "runs/earlier"):
        (work / folder).mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "there.txt").write_text("there")
    (work / "linked").symlink_to(elsewhere)
    for name, text in {
        "metrics.csv": "1,0.9\r\n",
        "config.json": '{"lr": 1}',
        "best.pt": "old",
        "results/1.txt": "1",
        "results/deep/2.txt": "2",
        "data/one.txt": "one",
        "logs/train.log": "step 1\n",
        "array.bin": "\1\2\3",
        "users_module.py": "VALUE = 3",
    }.items():
        (work / name).write_bytes(text.encode())
    return work


def test_files_of_every_kind(work: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    before = tree(work), tree(elsewhere)

    ran = run_contained("contained_files.py", work, tmp_path / "scratch", str(elsewhere), roots=[work, elsewhere])

    assert ran.stdout == "all as it should be\n", ran.stderr
    assert (tree(work), tree(elsewhere)) == before
    assert {f"{work}/metrics.csv", f"{work}/best.pt", f"{elsewhere}/through.txt", f"{work}/child.txt"} <= ran.written
    assert ran.programs == {"tar"}


def test_what_libraries_write(work: Path, tmp_path: Path) -> None:
    torch.save({"epoch": 1}, work / "best.pt")
    database = sqlite3.connect(work / "runs.db")
    database.executescript("create table runs (number); insert into runs values (1);")
    database.close()
    before = tree(work)

    ran = run_contained("contained_training.py", work, tmp_path / "scratch", "fork", "spawn")

    assert ran.stdout == "all as it should be\n", ran.stderr
    assert tree(work) == before
    names = {Path(path).name for path in ran.written}
    assert {
        "best.pt",
        "modèle.pt",
        "model.safetensors",
        "losses.parquet",
        "runs.db",
        "trace.json",
        "array.bin",
        "3.npy",
    } <= names


def test_random_operations_are_answered_as_the_system_answers_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("like_bare.py")), "0", "40"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "40 alike\n", done.stdout + done.stderr


def test_killed_while_it_writes(work: Path, tmp_path: Path) -> None:
    before, scratch = tree(work), tmp_path / "scratch"
    command = [sys.executable, str(SCRIPTS / "contained_writer.py")]
    child = subprocess.Popen(command, cwd=work, env=environment(scratch, [work]))
    deadline = time.monotonic() + 30

    # Removed, replaced and written anew, over and over.
    while not (scratch / f"files{work}" / "rounds" / "3").exists():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()

    assert tree(work) == before
