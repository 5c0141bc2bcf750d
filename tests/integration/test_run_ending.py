"""`flatout run --steps` and `--for`: the script ends as by Ctrl-C, after its own cleanup, and the exit code is 0."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.launch.process import ENDS, EarlyEnd, LookLimit
from tests.integration.running import until
from tests.integration.watching import Watch, Watched

STEPS = 40


def notices(seen: Watched) -> list[str]:
    return [fact["id"] for pointer, fact in seen.json["facts"].items() if pointer.startswith("/notices/")]


def test_it_ends_after_so_many_steps_as_by_ctrl_c(watch: Watch) -> None:
    seen = watch("asked_to_end.py", "plain", options=["--steps", str(STEPS)])

    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.split("\n")[:3] == ["caught", "cleaned up", "left"]
    assert "Traceback" not in seen.stderr
    assert seen.step_count == seen.json["run"]["steps"] == STEPS
    assert seen.json["run"]["exit_code"] == 0
    assert "run.ended_on_request" in notices(seen)
    assert not list(seen.run_dir.glob("look-*"))


@pytest.mark.parametrize(
    ("way", "lines"),
    [
        ("handles", ["handled", "cleaned up", "left"]),
        pytest.param("catches", ["caught", "cleaned up", "left"], marks=pytest.mark.variant),
    ],
)
def test_what_the_script_does_about_a_ctrl_c_is_done(watch: Watch, way: str, lines: list[str]) -> None:
    seen = watch("asked_to_end.py", way, options=["--for", "1s"])

    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.split("\n")[:3] == lines
    assert ("run.ended_on_request_code" in notices(seen)) == (way == "catches")
    assert seen.json["run"]["steps"] > 5


@pytest.mark.parametrize("options", [("--for", "0.05"), pytest.param(("--steps", "20"), marks=pytest.mark.variant)])
def test_all_ranks_end_after_the_same_step(watch: Watch, options: tuple[str, str]) -> None:
    seen = watch("torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py", "--epochs=40", options=options)

    assert seen.returncode == 0, seen.stderr
    counts = [int(recording.records["step"]["steps"].sum()) for recording in seen.trainings]
    assert len(counts) == 2
    assert counts[0] == counts[1] < 40 * 30  # 6 s at the least
    assert "run.ended_on_request" in notices(seen)


def test_a_script_that_ends_sooner_keeps_its_own_code(watch: Watch) -> None:
    seen = watch("ends.py", "raise", options=["--steps", "100000"])

    assert seen.returncode == 1
    assert "run.ended_on_request" not in notices(seen)


_DEAF = """
import signal, time
signal.signal(signal.SIGINT, lambda number, frame: print("no", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_one_that_does_not_end_is_made_to(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"ready\n"
        grace_s = ((signal.SIGINT, 0.1), (signal.SIGTERM, 0.3))
        with EarlyEnd(LookLimit(steps=3), tmp_path, deaf.send_signal, grace_s) as ending:
            time.sleep(0.2)
            assert deaf.poll() is None
            (tmp_path / ENDS).write_text("2")
            code = deaf.wait(200)
        assert code == -signal.SIGTERM
        assert deaf.stdout.read() == b"no\n"
    assert [notice.id for notice in ending.conclude(128 - code)] == ["run.ended_on_request"]
    assert list(ending.conclude(0)) == []


def test_one_that_makes_no_step_when_its_time_is_over_is_interrupted(tmp_path: Path) -> None:
    sent: list[int] = []
    with EarlyEnd(LookLimit(seconds=0.1), tmp_path, sent.append, grace_s=(), late_s=0.1) as ending:
        (tmp_path / "look-began").write_text("0")
        until(lambda: bool(sent))
    assert sent == [signal.SIGINT]
    assert [notice.id for notice in ending.conclude(130)] == ["run.ended_on_request"]
