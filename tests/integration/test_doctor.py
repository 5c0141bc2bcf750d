"""`flatout doctor` with real interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def _doctor(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flatout", "doctor", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_this_machine_is_fit_and_the_bootstrap_reaches_a_child(tmp_path: Path) -> None:
    done = _doctor("--json", "-", cwd=tmp_path)

    result = json.loads(done.stdout)
    found = {check["name"]: check for check in result["checks"]}
    assert (done.returncode, result["ok"]) == (0, True)
    assert found["attach"]["state"] == "ok" and "its steps recorded" in found["attach"]["value"]
    assert found["torch"]["state"] == "ok"
    assert {"python", "CPUs", "memory", "/dev/shm", "folder"} <= set(found)
    assert all(check["advice"] for check in result["checks"] if check["state"] != "ok")


def test_an_interpreter_that_does_not_start_is_broken(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'no such library' >&2\nexit 127\n")
    fake.chmod(0o755)

    done = _doctor("--python", str(fake), cwd=tmp_path)

    assert done.returncode == 1
    assert "broken" in done.stdout and "no such library" in done.stdout


def test_an_interpreter_that_keeps_us_out_is_broken(tmp_path: Path) -> None:
    shy = tmp_path / "python"
    shy.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    shy.chmod(0o755)

    done = _doctor("--python", str(shy), cwd=tmp_path)

    assert done.returncode == 1
    assert "the bootstrap did not run" in done.stdout
    assert "missing torch" in done.stdout.replace("  ", " ")


def test_no_interpreter_is_one_line(tmp_path: Path) -> None:
    done = _doctor("--python", "/no/such/python", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("flatout: --python '/no/such/python' is no interpreter")
