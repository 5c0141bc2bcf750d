"""A tool that rides along must never be the reason a training fails."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from flatout.launch.process import BOOTSTRAP
from tests.integration.watching import SCRIPTS, Run, Watch

ATTACH = BOOTSTRAP.parent


def test_a_hook_that_raises_disables_itself_with_one_warning(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("sabotaged.py")
    seen = watch("sabotaged.py")

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    broken = seen.told("BROKEN")
    assert not [b for b in broken if not b["same"] or b["code"]], "training differs when this is broken"
    assert not [b for b in broken if len(b["messages"]) > 1], "more than one line is said"
    assert not [b for b in broken if any("planted in flatout" not in m for m in b["messages"])]
    # Most of what was broken is really in use; the rest serves other kinds of training.
    assert len([b for b in broken if b["messages"]]) >= 20


def test_a_failing_import_of_ours_leaves_the_script_bare(run_bare: Run, bare_once: Run, tmp_path: Path) -> None:
    broken = tmp_path / "attach"
    shutil.copytree(ATTACH, broken, ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "tracer.py").write_text("raise RuntimeError('does not load here')\n")

    bare = bare_once("epoch_loop.py")
    seen = run_bare("epoch_loop.py", **attached(broken / "bootstrap", tmp_path / "run"))

    assert (seen.losses, seen.returncode) == (bare.losses, 0)
    assert len([line for line in seen.stderr.splitlines() if "does not load here" in line]) == 1


@pytest.mark.parametrize(
    "settings",
    ["no json", *(pytest.param(text, marks=pytest.mark.variant) for text in ("[1]", '{"lines_hz": "fast"}'))],
)
def test_unusable_settings_leave_the_script_running(run_bare: Run, tmp_path: Path, settings: str) -> None:
    seen = run_bare("slicing.py", **attached(BOOTSTRAP, tmp_path), FLATOUT_SETTINGS=settings)

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["steps"] == 16
    assert "Traceback" not in seen.stderr


def test_a_run_directory_that_cannot_be_written_leaves_the_script_running(run_bare: Run, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    seen = run_bare("ends.py", "exit", **attached(BOOTSTRAP, blocked / "run"))

    assert seen.returncode == 3
    assert seen.truth["steps"] == 40
    notices = [line for line in seen.stderr.splitlines() if line.startswith("flatout")]
    assert 1 <= len(notices) <= 2, seen.stderr


_LIKE_ANOTHER = [
    pytest.param(end, marks=pytest.mark.variant)
    for end in ("sigterm", "raise", "exit", "interrupt", "thread", "os_exit")
]


@pytest.mark.parametrize("end", ["sigkill", *_LIKE_ANOTHER])
def test_every_end_is_the_scripts_own_and_its_steps_are_kept(watch: Watch, run_bare: Run, end: str) -> None:
    bare = run_bare("ends.py", end)
    seen = watch("ends.py", end)

    assert seen.shell_code == bare.shell_code == seen.json["run"]["exit_code"]
    ends_ns = seen.truth["ends_ns"]
    # A death that runs no exit handlers may cost what was not yet on record: a quarter of a second, no more.
    abrupt = end in ("sigterm", "sigkill", "os_exit")
    surely_kept = [e for e in ends_ns if e <= ends_ns[-1] - 250_000_000] if abrupt else ends_ns
    assert len(surely_kept) <= seen.step_count <= len(ends_ns)
    assert seen.json["run"]["steps"] == seen.step_count
    assert seen.samples == 8 * seen.step_count
    said = [line for line in bare.stderr.splitlines() if line.startswith(("Traceback", "ValueError", "Keyboard"))]
    assert [line for line in seen.stderr.splitlines() if line in said] == said


def test_the_users_signal_handlers_fire(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("handlers.py")
    seen = watch("handlers.py")

    assert (seen.stdout, seen.returncode) == (bare.stdout, bare.returncode)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
        assert number.name in seen.stdout


def test_a_fork_takes_nothing_of_ours_with_it(watch: Watch) -> None:
    seen = watch("forked.py")

    assert seen.returncode == 0, seen.stderr
    (child,) = seen.told("CHILD")
    (parent,) = seen.told("PARENT")
    assert child["threads"] == ["MainThread"]
    assert child["tasks"] == 1
    assert child["handles"] == []
    counts = {r.facts["pid"]: int(r.records["step"]["steps"].sum()) for r in seen.trainings}
    assert counts[parent] == 15
    assert counts.get(child["pid"], 0) <= 7


def test_detach_puts_the_very_originals_back(run_bare: Run, tmp_path: Path) -> None:
    seen = run_bare(
        "detached.py", str(ATTACH), FLATOUT_RUN_DIR=str(tmp_path), FLATOUT_SETTINGS='{"device_patches": true}'
    )

    assert seen.returncode == 0, seen.stderr
    assert int(seen.stdout.split()[1]) > 20, "the tracer was installed"
    assert "NOT RESTORED" not in seen.stdout, seen.stdout
    assert "threads []" in seen.stdout
    assert "trained on" in seen.stdout
    assert seen.stderr == ""


@pytest.mark.variant
def test_memory_stays_flat(watch: Watch) -> None:
    steps = 12_000

    seen = watch("long_run.py", str(steps))

    (growth_bytes,) = seen.told("GROWTH")
    assert growth_bytes < 3 << 20
    assert seen.step_count == steps
    recordings = (seen.run_dir / "proc").glob("*.rec")
    assert sum(path.stat().st_size for path in recordings) <= 200 * steps + (2 << 20)


def attached(bootstrap: Path, run_dir: Path) -> dict[str, str]:
    """The environment `flatout run` gives to a child."""
    path = os.pathsep.join([str(bootstrap), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "FLATOUT_RUN_DIR": str(run_dir)}


def test_the_scripts_do_not_import_flatout() -> None:
    for script in SCRIPTS.glob("*.py"):
        text = script.read_text()
        assert "import flatout" not in text and "from flatout" not in text, script.name
