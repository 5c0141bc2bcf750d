"""`flatout report`: a stored run, or the record of a fix, as one HTML file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flatout import __version__
from flatout.diagnose.summary import summarise_run
from flatout.errors import FlatoutError
from flatout.launch.run_page import run_material
from flatout.launch.terminal import write_stderr
from flatout.records.atomic import SHARED, write_atomic
from flatout.records.fix import Fix
from flatout.records.trial import Trial
from flatout.report.html.fix_page import FixMaterial, fix_page, is_arm
from flatout.report.html.page import LANGUAGES, Page, draw_page
from flatout.report.html.run_page import run_page
from flatout.report.json import fix_from_json, trial_from_json
from flatout.store.directory import FIX_RECORD, FIXES, find_run
from flatout.store.run import StoredRun


def run_report(name: str | None, *, out: str | None, language: str, quiet: bool) -> int:
    """Write the page of the run or fix `name` to `out` (default: beside us, by its own name; "-": stdout)."""
    _check_language(language)
    stem, page = make_page(name)
    if out == "-":
        # UTF-8 as the page itself says, whatever the terminal's encoding.
        sys.stdout.buffer.write(draw_page(page, language, __version__).encode())
        sys.stdout.flush()
        return 0
    file = Path(out or f"{stem}.html")
    size_bytes = write_page(page, file, language)
    if not quiet:
        write_stderr(f"flatout: wrote {file} ({size_bytes / 1024:,.0f} KiB)\n")
    return 0


def write_page(page: Page, file: Path, language: str) -> int:
    """Its size in bytes."""
    _check_language(language)
    data = draw_page(page, language, __version__).encode()
    try:
        write_atomic(file, data, mode=SHARED)
    except OSError as error:
        raise FlatoutError(
            f"{str(file)!r} could not be written ({error.strerror or error}): give another -o"
        ) from error
    return len(data)


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise FlatoutError(f"--lang must be one of {', '.join(LANGUAGES)}, got {language!r}")


def make_page(name: str | None) -> tuple[str, Page]:
    """The page of a run or of a fix, and a name for its file. Where a name fits both, it is the run."""
    try:
        fix = fix_at(Path(name)) if name else None
        run = StoredRun(find_run(name or "last")) if fix is None else None
    except FlatoutError:
        fix, run = fix_named(name or ""), None
        if fix is None:
            raise
    if run is not None:
        return run.id, run_page(run_material(run))
    assert fix is not None
    before = None if (look := fix.look) is None else run_material(look)
    after = None if (run := fix.after) is None else summarise_run(run)
    return fix.stem, fix_page(FixMaterial(fix.fix, tuple(fix.trials.values()), before, after, fix.stem))


# A fix on disk: its record, its trials, and the runs that were recorded before and after.

_LOOK = "look"


@dataclass(frozen=True, slots=True)
class FoundFix:
    """`trials` are those whose folders are still there, by folder."""

    stem: str
    fix: Fix
    trials: dict[Path, Trial]

    @property
    def look(self) -> StoredRun | None:
        """The run that was looked at before anything was changed."""
        return _recorded(self.trials, lambda trial: trial.arm == _LOOK and not trial.remedies)

    @property
    def after(self) -> StoredRun | None:
        """A trial under the whole profile, where its recording was kept."""
        profile = self.fix.profile
        if not profile:
            return None
        return _recorded(self.trials, lambda trial: is_arm(trial) and trial.remedies == profile and trial.ended_well)


def fix_at(path: Path) -> FoundFix | None:
    """By its folder or its file; None where there is no fix."""
    if path.is_dir() and (path / FIX_RECORD).is_file():
        return _read_fix(path / FIX_RECORD)
    return _read_fix(path) if path.suffix == ".json" and path.is_file() else None


def fix_named(name: str) -> FoundFix | None:
    """The one in the usual place whose folder begins so."""
    is_plain = bool(name) and not set(name) & set("/\\*?[]") and name != "last"
    folders = sorted(FIXES.glob(f"{name}*")) if is_plain else []
    return next((found for folder in folders if (found := fix_at(folder)) is not None), None)


def _read_fix(file: Path) -> FoundFix:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FlatoutError(f"{str(file)!r} cannot be read: {error}") from error
    if not isinstance(value, dict) or "tried" not in value:
        raise FlatoutError(f"{str(file)!r} is not the record of a fix; give a run, or the fix.json of flatout fix")
    files = sorted(_folder(file).glob("*/trial.json"))
    trials = {path.parent: trial for path in files if (trial := _trial(path)) is not None}
    stem = f"fix-{file.parent.resolve().name}" if file.name == FIX_RECORD else file.stem
    return FoundFix(stem, fix_from_json(value), trials)


def _folder(file: Path) -> Path:
    """Where the trials are: beside the record, or below, where a copy of it lies in the project's own folder."""
    if any(file.parent.glob("*/trial.json")):
        return file.parent
    below = sorted((file.parent / FIXES).glob(f"*/{FIX_RECORD}"))
    same = [record for record in below if record.read_bytes() == file.read_bytes()]
    return same[-1].parent if same else file.parent


def _trial(file: Path) -> Trial | None:
    try:
        return trial_from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _recorded(trials: Mapping[Path, Trial], is_wanted: Callable[[Trial], bool]) -> StoredRun | None:
    """The first of these whose recording is still there."""
    for folder, trial in trials.items():
        try:
            run = StoredRun(folder) if is_wanted(trial) else None
        except FlatoutError:
            continue
        if run is not None and run.recordings:
            return run
    return None
