"""Runs a script as a trial does, contained, and tells whether the user's files are as they were."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import flatout

SCRIPTS = Path(__file__).parents[1] / "scripts"
_BOOTSTRAP = Path(flatout.__file__).parent / "attach" / "bootstrap"
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Contained:
    stdout: str
    stderr: str
    code: int
    written: set[str]
    programs: set[str]


def environment(scratch: Path, roots: list[Path]) -> dict[str, str]:
    scratch.mkdir(parents=True, exist_ok=True)
    wanted = {"steps": 10**9, "scratch": str(scratch), "written": f"{scratch}/written.txt", "roots": [*map(str, roots)]}
    path = os.pathsep.join([str(_BOOTSTRAP), os.environ["PYTHONPATH"]])
    own = {"FLATOUT_RUN_DIR": str(scratch), "FLATOUT_TRIAL": json.dumps(wanted), "PYTHONPATH": path}
    return {name: value for name, value in os.environ.items() if not name.startswith("FLATOUT_")} | own


def run_contained(script: str, work: Path, scratch: Path, *args: str, roots: list[Path] | None = None) -> Contained:
    """`script` by its name, in the folder `work`, which is the user's."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *args],
        cwd=work,
        env=environment(scratch, roots or [work]),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    notes = scratch / "written.txt"
    told = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    files, programs = ({fact[kind] for fact in told if kind in fact} for kind in ("file", "program"))
    return Contained(done.stdout, done.stderr, done.returncode, files, programs)


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of the last change and content of everything in a folder, and of itself."""
    seen = {}
    for path in [folder, *folder.rglob("*")]:
        known = path.lstat()
        if path.is_symlink():
            content = str(path.readlink())
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        seen[str(path.relative_to(folder))] = (known.st_mode, known.st_mtime_ns, content)
    return seen
