"""`flatout fix`: watch, plan, try, prove, and write down what to use."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from flatout.errors import FlatoutError
from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.calm import CalmWaiter
from flatout.experiment.plan import Wishes
from flatout.experiment.proof import check_quality, conclude, confirm, prove_profile
from flatout.experiment.request import Request, check_metric
from flatout.experiment.runner import prestarting_runner
from flatout.experiment.search import End, Search
from flatout.launch.process import INTERRUPTED, command_line, interpreter, sigterm_interrupts
from flatout.launch.profile import profile_toml, read_profile
from flatout.launch.roofline import cached_roofline, keep_roofline, measure_roofline
from flatout.launch.terminal import Terminal, detect_terminal, write_json, write_stderr
from flatout.records.atomic import SHARED, write_atomic
from flatout.records.fix import Fix, Quality, Tried
from flatout.records.message import Message, message
from flatout.records.proof import BAR
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.report.fix import gain_with_bounds, quality_sentences, remedy_with_value, render, render_plan, to_json
from flatout.report.overview import next_after_fix
from flatout.report.text import fold_command
from flatout.store.directory import FIX_RECORD, FIXES
from flatout.words import english

_CLASSES = ("numeric", "training")
_LEAST_BUDGET_S = 20.0
_BUDGETS_S = (600.0, 285.0)
_RESUMED_S = 86_400.0
# A search that is shorter has no seconds to spare for the device's limit.
_LEAST_MEASURED_S = 120.0


@dataclass(frozen=True, slots=True)
class FixOptions:
    """The user's command line."""

    cmd: tuple[str, ...]
    allow: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    # None: ten minutes, and under five where steps are quick.
    budget_s: float | None = None
    metric: str | None = None
    higher: bool = True
    dry_run: bool = False
    edit: bool = False
    allow_writes: bool = False
    fresh: bool = False
    profile: Path = Path("flatout.toml")
    json: str | None = None
    python: str | None = None
    quiet: bool = False
    verbose: bool = False


def run_fix(asked: FixOptions) -> int:
    """The whole loop; 0 if something was kept, 1 if not."""
    settings = _settings(asked)
    command_line(asked.cmd, asked.python)  # a mistake in the command is told before anything starts
    _check_places(asked)
    folder = _folder(asked)
    progress = Progress(detect_terminal(os.environ), asked.quiet, settings.budget_s)
    if made := len(list(folder.glob("*/trial.json"))):
        progress.say(f"going on with {made} trials of a search that was cut off (--fresh starts anew)")
    with (
        sigterm_interrupts(),
        prestarting_runner(
            folder, asked.python, progress.begins, CalmWaiter(progress.tell, settings.budget_s)
        ) as maker,
    ):
        try:
            bench, report = take_first_look(settings, maker, maker.report)
        except KeyboardInterrupt:
            return _interrupted(progress)
        _know_device(report, asked.python, settings.budget_s, progress)
        search = Search(bench, maker.report, maker.in_turns, progress.found)
        progress.budget_s = bench.settings.budget_s
        if asked.dry_run:
            return _show_plan(search, report, progress, bench.made.all)
        quality, is_whole = Quality(), False
        try:
            search.run(report)
            if search.found.profile:
                quality = prove_profile(bench, search)
            is_whole = True
        except KeyboardInterrupt:
            search.found.ended = End.INTERRUPTED
            if not bench.made.of({}):
                return _interrupted(progress)
    fix = conclude(bench, search, report, quality)
    progress.end()
    code = _publish(with_written(fix), asked, folder, progress.screen)
    return code if is_whole else INTERRUPTED


def _know_device(report: RunReport, python: str | None, budget_s: float, progress: Progress) -> None:
    """Measure what the GPU can do, once: what is left to its limit is told by that."""
    device, torch = report.run.device, report.run.torch
    if device == "cpu" or torch is None or budget_s < _LEAST_MEASURED_S or cached_roofline(device, torch) is not None:
        return
    progress.say("measuring what the GPU can do (once, some seconds)")
    roofline = measure_roofline(interpreter(python))
    if roofline is not None:
        keep_roofline(roofline)


def _interrupted(progress: Progress) -> int:
    """Before there was anything to show."""
    progress.end()
    progress.say("interrupted before anything was measured; the same command goes on with the trials that are done")
    return INTERRUPTED


def _settings(asked: FixOptions) -> Settings:
    for safety in asked.allow:
        if safety not in _CLASSES:
            raise FlatoutError(f"--allow {safety!r}: write numeric or training; lossless remedies are always allowed")
    # Whoever allows a change of the training allows other rounding as well.
    allow = (*asked.allow, "numeric") if "training" in asked.allow else asked.allow
    wishes = Wishes(allow, asked.only, asked.without)
    wishes.check()
    check_metric(asked.metric)
    budget_s, quick_s = _BUDGETS_S if asked.budget_s is None else (asked.budget_s, None)
    if budget_s < _LEAST_BUDGET_S:
        raise FlatoutError(f"--budget {budget_s:g}s is too short for any trial: give at least {_LEAST_BUDGET_S:g}s")
    return Settings(asked.cmd, wishes, budget_s, asked.metric, asked.higher, asked.allow_writes, quick_budget_s=quick_s)


def _check_places(asked: FixOptions) -> None:
    """Where the results are to go. To learn after the search that there is no such folder would be late."""
    for option, file in (("--profile", asked.profile), ("--json", Path(asked.json or "-"))):
        if not file.parent.is_dir():
            raise FlatoutError(f"{option} {file}: there is no folder {file.parent}")
        if file.is_dir():
            raise FlatoutError(f"{option} {file} is a folder: name a file")


def _folder(asked: FixOptions) -> Path:
    """A new one, or that of the same command's last search if it was cut off."""
    try:
        FIXES.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlatoutError(
            f"{os.getcwd()} cannot be written to ({error.strerror}): fix keeps its trials there; "
            "go to a folder of your own"
        ) from None
    same = hashlib.blake2b(json.dumps([asked.cmd, asked.python]).encode(), digest_size=4).hexdigest()
    for folder in sorted(FIXES.glob(f"*-{same}"), reverse=True):
        is_recent = time.time() - folder.stat().st_mtime < _RESUMED_S
        if is_recent and not (folder / FIX_RECORD).exists() and not asked.fresh:
            return folder
        break
    for number in range(1000):
        folder = FIXES / f"{time.strftime('%Y%m%d-%H%M%S')}{f'-{number}' if number else ''}-{same}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FlatoutError(f"no folder could be made in {str(FIXES)!r}")


def _show_plan(search: Search, report: RunReport, progress: Progress, looks: Sequence[Trial]) -> int:
    progress.end()
    screen = progress.screen
    write_stderr(render_plan(search.plan(report), width=screen.width, color=screen.color, unicode=screen.unicode))
    files = [file for look in looks for file in look.written]
    programs = dict.fromkeys(name for look in looks for name in look.uncontained)
    for notice in _on_written(files, programs):
        write_stderr(f" {english(notice)}\n")
    return 0


def with_written(fix: Fix) -> Fix:
    return replace(fix, notices=(*fix.notices, *_on_written(fix.written, fix.uncontained)))


def _on_written(files: Sequence[str], programs: Iterable[str]) -> Iterator[Message]:
    """A line on the files that did not go where they always go, and on programs whose files did."""
    if files:
        first = os.path.relpath(files[0])
        several = message("fix.wrote_files", count=len(files), first=first)
        yield several if len(files) > 1 else message("fix.wrote_file", first=first)
    for program in programs:
        yield message("fix.uncontained_program", program=program)


def _publish(fix: Fix, asked: FixOptions, folder: Path, screen: Terminal) -> int:
    found = to_json(fix)
    write_atomic(folder / FIX_RECORD, json.dumps(found, indent=2, default=str) + "\n", mode=SHARED)
    if asked.json is not None:
        write_json(asked.json, found)
    if fix.profile:
        write_atomic(asked.profile, _profile(fix), mode=SHARED)
        fix = _with_patch(fix, asked)
    if not asked.quiet:
        write_stderr(render(fix, width=screen.width, color=screen.color, unicode=screen.unicode, verbose=asked.verbose))
        if fix.profile:
            command = fold_command(next_after_fix(fix, shlex.quote(str(asked.profile))), screen.width - 3, "     ")
            write_stderr(f"\n Wrote {asked.profile}. Use it with:\n   {command}\n")
        else:
            write_stderr(f"flatout: everything measured is in {folder}\n")
    return 0 if fix.profile else 1


def _with_patch(fix: Fix, asked: FixOptions) -> Fix:
    """The same written into the source, as far as `flatout check` can: a diff, and on --apply the edit itself."""
    from flatout.app import check

    codes = [code for tried in fix.tried if tried.state == "kept" for code in tried.planned.codes]
    files = [Path(file) for file in fix.sources if Path(file).is_file()]
    if not codes or not files:
        return fix
    place = asked.profile.with_suffix(".patch")
    notice = message("fix.no_source_change")
    try:
        if changes := check.make_patch(files, codes, fix.workers, edit=False):
            place.write_bytes(changes)
            if asked.edit:
                check.make_patch(files, codes, fix.workers, edit=True)
            notice = message("fix.edited" if asked.edit else "fix.patch", patch=str(place))
    except (FlatoutError, OSError) as error:
        notice = message("fix.no_patch", error=str(error))
    return replace(fix, notices=(*fix.notices, notice))


def _profile(fix: Fix) -> str:
    gain = f", {fix.gain.mid:.2f} times as fast ({fix.gain.low:.2f} to {fix.gain.high:.2f})" if fix.gain else ""
    comments = [f"By flatout fix {shlex.join(fix.command)}", f"{time.strftime('%Y-%m-%d')}, {fix.device}{gain}"]
    comments += quality_sentences(fix.quality)
    notes = {
        tried.planned.id: f"{tried.priority} impact, {tried.planned.safety}: ×{tried.gain.mid:.2f} measured"
        for tried in fix.tried
        if tried.state == "kept" and tried.gain is not None
    }
    return profile_toml(fix.profile, comments, notes)


# What a search is doing: a line on the terminal for the trial being made, and one that stays for what was found.


class Progress:
    """Without a terminal every trial is a line of its own."""

    def __init__(self, screen: Terminal, quiet: bool, budget_s: float | None = None) -> None:
        self.screen = screen
        self.budget_s = budget_s
        self._is_shown = not quiet
        self._is_line = screen.fd is not None
        self._number = 0
        self._began_s = time.monotonic()

    def begins(self, request: Request) -> None:
        self._number += 1
        words = "looking at the script" if request.with_lines else f"trial {self._number}: {request.arm}"
        took_s = time.monotonic() - self._began_s
        left = f", at most {max(0.0, self.budget_s - took_s):.0f} s to go" if self.budget_s is not None else ""
        self.say(f"{words} ({took_s:.0f} s{left})", stays=False)

    def found(self, tried: Tried) -> None:
        """A remedy was judged; what it came to may still change with more trials."""
        gain = tried.gain
        figure = f", {gain_with_bounds(gain)}" if gain is not None else ""
        self.say(f"{remedy_with_value(tried.planned)}: {tried.outcome}{figure}")

    def tell(self, fact: Message) -> None:
        self.say(english(fact))

    def say(self, words: str, stays: bool = True) -> None:
        if self._is_shown:
            before, after = ("\r\x1b[K", "\n" if stays else "") if self._is_line else ("", "\n")
            write_stderr(f"{before}flatout: {words}{after}")

    def end(self) -> None:
        if self._is_shown and self._is_line:
            write_stderr("\r\x1b[K")


# `flatout verify`: is a profile still what it was said to be, here and today? The proof again, without a search.


def run_verify(asked: FixOptions) -> int:
    """0 if the profile still gains and still changes nothing it should not; 1 if not."""
    assert asked.budget_s is not None
    values = read_profile(asked.profile, ()).values
    if not values:
        raise FlatoutError(f"{asked.profile} asks for no remedy, so there is nothing to verify")
    command_line(asked.cmd, asked.python)
    check_metric(asked.metric)
    settings = Settings(
        asked.cmd,
        budget_s=asked.budget_s,
        metric=asked.metric,
        higher=asked.higher,
        allow_writes=asked.allow_writes,
    )
    progress = Progress(detect_terminal(os.environ), asked.quiet, settings.budget_s)
    try:
        with sigterm_interrupts():
            fix = _measured(settings, values, progress, asked.python)
    except KeyboardInterrupt:
        progress.end()
        write_stderr("flatout: interrupted before the profile was judged; nothing was changed or kept\n")
        return INTERRUPTED
    progress.end()
    return _show_verified(fix, asked)


def _measured(settings: Settings, values: Mapping[str, object], progress: Progress, python: str | None) -> Fix:
    with (
        TemporaryDirectory(prefix="flatout-verify-") as folder,
        prestarting_runner(Path(folder), python, progress.begins) as maker,
    ):
        bench, report = take_first_look(settings, maker, maker.report)
        search = Search(bench, maker.report)
        search.measure_bare()
        search.found.profile, search.found.ended = dict(values), End.VERIFIED
        confirm(bench, search)
        return with_written(conclude(bench, search, report, check_quality(bench, search)))


def _show_verified(fix: Fix, asked: FixOptions) -> int:
    screen = detect_terminal(os.environ)
    why = _objection(fix)
    if asked.json is not None:
        write_json(asked.json, {**to_json(fix), "holds": why is None})
    if not asked.quiet:
        write_stderr(render(fix, width=screen.width, color=screen.color, unicode=screen.unicode))
        write_stderr(" The profile holds.\n" if why is None else f" The profile does not hold: {english(why)}.\n")
    return 0 if why is None else 1


def _objection(fix: Fix) -> Message | None:
    if fix.gain is None:
        return next(iter(fix.failures.values()), message("verify.unmeasured"))
    quality = fix.quality
    if quality.identity is not None and quality.identity.verdict == "differs":
        return message("verify.differs", sentence=quality.identity.sentence)
    for verdict in (quality.envelope, quality.metric):
        if verdict is not None and verdict.verdict in ("outside", "worse"):
            return verdict.sentence
    return None if fix.gain.low > BAR else message("verify.slower")
