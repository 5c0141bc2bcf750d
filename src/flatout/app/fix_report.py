"""What the page of a fix is made of: the record, its trials, and the runs that were recorded before and after."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.diagnose.summary import summarise_run
from flatout.errors import FlatoutError
from flatout.records.fix import Fix
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.report.html.fix_page import FixMaterial
from flatout.report.html.proof_drawing import is_arm
from flatout.report.html.run_page import RunMaterial
from flatout.report.json import fix_from_json, trial_from_json
from flatout.store.run import StoredRun

# Where `flatout fix` files its searches.
ROOT = Path(".flatout", "fix")
_DONE = "fix.json"
_LOOK = "look"


@dataclass(frozen=True, slots=True)
class FoundFix:
    """A fix on disk. `folders` are those of its trials, which may be gone."""

    stem: str
    fix: Fix
    folders: tuple[Path, ...]
    trials: tuple[Trial, ...]

    @property
    def look(self) -> StoredRun | None:
        """The run that was looked at before anything was changed."""
        looks = [
            folder
            for folder, trial in zip(self.folders, self.trials, strict=True)
            if trial.arm == _LOOK and not trial.remedies
        ]
        return _recorded(looks)

    @property
    def after(self) -> StoredRun | None:
        """A trial under the whole profile, where its recording was kept."""
        if not self.fix.profile:
            return None
        pairs = [(folder, trial) for folder, trial in zip(self.folders, self.trials, strict=True) if is_arm(trial)]
        return _recorded(folder for folder, trial in pairs if trial.remedies == self.fix.profile and trial.ended_well)


def fix_at(path: Path) -> FoundFix | None:
    """By its folder or its file; None where there is no fix."""
    file = _file(path)
    return None if file is None else _read(file)


def fix_named(name: str) -> FoundFix | None:
    """The one in the usual place whose folder begins so."""
    folders = sorted(ROOT.glob(f"{name}*")) if _is_plain(name) else []
    return next((found for folder in folders if (found := fix_at(folder)) is not None), None)


def _read(file: Path) -> FoundFix:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FlatoutError(f"{str(file)!r} cannot be read: {error}") from error
    if not isinstance(value, dict) or "tried" not in value:
        raise FlatoutError(f"{str(file)!r} is not the record of a fix; give a run, or the fix.json of flatout fix")
    trials = [(path.parent, _trial(path)) for path in sorted(_folder(file).glob("*/trial.json"))]
    known = [(folder, trial) for folder, trial in trials if trial is not None]
    stem = f"fix-{file.parent.resolve().name}" if file.name == _DONE else file.stem
    return FoundFix(stem, fix_from_json(value), tuple(one[0] for one in known), tuple(one[1] for one in known))


def fix_material(found: FoundFix, before: RunMaterial | None) -> FixMaterial:
    after = found.after
    return FixMaterial(found.fix, found.trials, before, None if after is None else _report(after), found.stem)


def _file(path: Path) -> Path | None:
    if path.is_dir() and (path / _DONE).is_file():
        return path / _DONE
    return path if path.suffix == ".json" and path.is_file() else None


def _folder(file: Path) -> Path:
    """Where the trials are: beside the record, or below, where a copy of it lies in the project's own folder."""
    if any(file.parent.glob("*/trial.json")):
        return file.parent
    below = sorted((file.parent / ROOT).glob(f"*/{_DONE}"))
    same = [one for one in below if one.read_bytes() == file.read_bytes()]
    return same[-1].parent if same else file.parent


def _is_plain(name: str) -> bool:
    """No path, and nothing that a pattern would take for one."""
    return bool(name) and not set(name) & set("/\\*?[]") and name != "last"


def _trial(file: Path) -> Trial | None:
    try:
        value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return trial_from_json(value)
    except (OSError, ValueError, TypeError):
        return None


def _recorded(folders: Iterable[Path]) -> StoredRun | None:
    """The first whose recording is still there."""
    for folder in folders:
        try:
            run = StoredRun(folder)
        except FlatoutError:
            continue
        if run.recordings:
            return run
    return None


def _report(run: StoredRun) -> RunReport:
    return summarise_run(run)
