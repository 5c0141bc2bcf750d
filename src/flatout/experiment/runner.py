"""Makes trials: starts the script under a profile, watched like any run, and turns its recording into a result.

Finished trials are kept as JSON beside their recordings; one that was made already is read again, so that a search
which was cut off goes on where it was.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatout import __version__
from flatout.attach.trial.run import compiler_variables
from flatout.diagnose.findings import all_findings
from flatout.diagnose.ranks import Rank, training_ranks
from flatout.diagnose.source_join import examine_run_and_source
from flatout.experiment.calm import CalmWaiter
from flatout.experiment.process import Prestarted, PrestartedPool, Process
from flatout.experiment.request import REMEDIES, Request
from flatout.experiment.trial_reader import OUTPUT, WRITTEN, read_trial, read_turns
from flatout.feed.machine import free_bytes
from flatout.launch.live import Follower
from flatout.launch.observer import Observer
from flatout.launch.process import child_environment, command_line, reap_shared_memory
from flatout.launch.terminal import Notices
from flatout.records.atomic import write_atomic
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.remedies.loader.workers import WORKERS_VARIABLE as WORKERS
from flatout.remedies.memo.kept_calls import CARRIED_VARIABLE as CARRIED
from flatout.store.directory import create_run
from flatout.store.manifest import Manifest
from flatout.store.run import StoredRun
from flatout.telemetry.cgroup import cpus_allowed
from flatout.words.codec import decode, encode

TRIAL = "FLATOUT_TRIAL"
# A first step may compile, read an index or download: it is given half of the time there is, but no less than this.
_FIRST_STEP_S = 120.0
# A look is short and its speed is not used: its lines are looked at as often as the sampler's own budget allows.
_LOOKING_HZ = 40.0
_LOOKING_BUDGET = 0.02  # of its time, for windows that link backward to lines: a diagnostic trial is short
_RESULT, _SCRATCH = "trial.json", "scratch"
_CARRIED = "carried"
# Processes that wait for their trials: so many at most, each with so much memory to be had (it takes a tenth of that).
_AT_ONCE, _ROOM_FOR_EACH = 6, 4 << 30


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Makes the trials of one search, filed under `folder`."""

    folder: Path
    python: str | None = None
    interval_s: float = 0.5
    # Told of every trial that begins.
    tell: Callable[[Request], None] = lambda request: None
    # Processes that are started ahead of time, several at once.
    ready: PrestartedPool | None = None
    # Waits where others disturbed a trial, so that it can be made again; without it they stay as they are.
    calm: CalmWaiter | None = None

    def __call__(self, request: Request) -> Trial:
        place = self.folder / f"{_plain(request.arm)}-{request.key}"
        done = _read(place / _RESULT)
        # One that ran out of time may have more of it now.
        if done is not None and (done.ending != "out of time" or done.wall_s >= request.limit_s):
            return done
        self.tell(request)
        shutil.rmtree(place, ignore_errors=True)  # what a trial that was cut off has left
        trial = self._made(request, place)
        if self.calm is not None and self.calm.wait_for(trial):
            trial = self._made_again(request, place, trial)
        write_atomic(place / _RESULT, json.dumps(encode(trial, only_finite=False)))
        return trial

    def _made_again(self, request: Request, place: Path, first: Trial) -> Trial:
        """The second, unless that was disturbed even more."""
        aside = place.with_name(f"{place.name}-disturbed")
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
        second = self._made(request, place)
        if second.ended_well and second.lost_share <= first.lost_share:
            return replace(second, made_again=True)
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        return first

    def report(self, trial: Trial) -> RunReport:
        """The diagnosis of a trial's recording. How long the script would have gone on by itself is not known."""
        run = StoredRun(Path(trial.run))
        evidence = examine_run_and_source(run)
        # What the few steps of a trial cannot tell is found out by trials.
        report = replace(evidence.report, findings=all_findings(evidence))
        return replace(report, run=replace(report.run, exit_code=None)) if trial.ending == "stopped" else report

    def in_turns(self, trial: Trial) -> dict[str, Trial]:
        """The arms that took turns in this trial, each as a trial of its own."""
        return read_turns(trial, training_ranks(StoredRun(Path(trial.run))))

    def _made(self, request: Request, place: Path) -> Trial:
        argv = command_line([request.files.get(word, word) for word in request.command], self.python)
        started = self._started(argv, request)
        run = create_run(_plain(request.arm), out=place)
        manifest = run.begin(Manifest(run.id, request.command, os.getcwd(), time.time(), flatout=__version__))
        notices = Notices()
        scratch = (place if started is None else started.place).absolute() / _SCRATCH
        environ = self._environ(request, run.work, scratch)
        with Process(argv, environ, place / OUTPUT, started) as process:
            observer = Observer(run, manifest, notices)
            observer.sample(process.pid, self.interval_s)
            observer.capture_environment(Path.cwd())
            follower = Follower(run.work / "proc")
            first_step_s = max(_FIRST_STEP_S, request.limit_s / 2)
            ended = process.wait(request.limit_s, lambda: follower.figures(None).steps, first_step_s)
            observer.stop()
        run.finish(
            replace(
                manifest,
                ended_unix_s=time.time(),
                exit_code=ended.code,
                wall_s=ended.wall_s,
                environment=observer.environment(),
                notices=tuple(notices),
            )
        )
        ranks = training_ranks(StoredRun(place))
        if self.ready is not None and (told := _told_if_prestartable(ranks, process.pid)):
            self.ready.begin(imports_compiler=told["imports_compiler"])
        trial = read_trial(request, place, ended, ranks, scratch)
        # The next trial shall not come upon the files of this one, and checkpoints are large.
        shutil.rmtree(scratch if started is None else scratch.parent, ignore_errors=True)
        reap_shared_memory()
        return trial

    def _started(self, argv: Sequence[str], request: Request) -> Prestarted | None:
        """One that waits for a trial. Where the script writes is not up to the trial, so it is contained already."""
        if self.ready is None or request.allow_writes:
            return None

        def environ(place: Path) -> dict[str, str]:
            # What is recorded later lies somewhere in the folder of the search.
            wanted = json.dumps(_contained(place.absolute() / _SCRATCH, request.command))
            return child_environment({**_plain_environ(), TRIAL: wanted}, self.folder.absolute(), {})

        return self.ready.take(argv, environ)

    def _environ(self, request: Request, work: Path, scratch: Path) -> dict[str, str]:
        plain = _plain_environ()
        wanted: dict[str, object] = {"steps": request.steps, "seconds": request.seconds}
        wanted |= {
            "enough": request.enough,
            "digest_at": request.digest_at,
            "replay": request.replays,
            "feed": request.feeds,
            "perturb": (request.perturbed, request.repeat),
            "reseed": request.reseeded,
            "arms": [(name, dict(remedies)) for name, remedies in request.arms],
            "timed": request.timed,
            "settling": request.settling,
            "warm_up": request.warm_up,
        }
        if not request.allow_writes:
            wanted |= _contained(scratch, request.command)
        plain[TRIAL] = json.dumps(wanted)
        if request.remedies:
            plain[REMEDIES] = json.dumps(dict(request.remedies))
            plain[CARRIED] = str((self.folder / _CARRIED).absolute())
        if request.workers:
            plain[WORKERS] = json.dumps(dict(request.workers))
        if not request.with_lines:
            return child_environment(plain, work, {"lines_hz": 0.0, "window": False})
        looking = {"window_budget": _LOOKING_BUDGET, "kernels_always": True, "operations_budget": 1.0}
        looking["operations_memory"] = True
        return child_environment(plain, work, {"lines_hz": _LOOKING_HZ, **looking})


@contextmanager
def prestarting_runner(
    folder: Path, python: str | None, tell: Callable[[Request], None], calm: CalmWaiter | None = None
) -> Iterator[TrialRunner]:
    """A maker whose processes are started several at once, as many as the machine has room for."""
    room = free_bytes()
    most = min(_AT_ONCE, int(cpus_allowed()), room // _ROOM_FOR_EACH if room is not None else 1)
    with PrestartedPool(folder / "ready", most) as ready:
        try:
            yield TrialRunner(folder, python, tell=tell, ready=ready, calm=calm)
        finally:
            shutil.rmtree(folder / _CARRIED, ignore_errors=True)  # it may be large, and was for these trials only


def _told_if_prestartable(ranks: Sequence[Rank], pid: int) -> dict[str, Any] | None:
    """What a trial told of itself, if processes of its script may be started ahead of time.

    It has to train in the very process that is started, and to leave variables alone that are read too soon then.
    """
    told = [rank.recording.values("trial") for rank in ranks if rank.recording.facts.get("pid") == pid]
    variables = compiler_variables(os.environ)
    return next((values[0] for values in told if values and values[0].get("compiler") == variables), None)


def _plain_environ() -> dict[str, str]:
    """The user's, without what is ours."""
    return {name: value for name, value in os.environ.items() if name not in (REMEDIES, TRIAL, WORKERS, CARRIED)}


def _contained(scratch: Path, command: Sequence[str]) -> dict[str, object]:
    """What the script writes goes to a folder that is made for it."""
    scratch.mkdir(exist_ok=True)
    return {"scratch": str(scratch), "written": str(scratch / WRITTEN), "roots": _roots(command)}


def _roots(command: Sequence[str]) -> list[str]:
    """Folders of the user's, which count as such even below a temporary folder: here, and where the script is."""
    scripts = [Path(word) for word in command if word.endswith(".py") and Path(word).is_file()]
    return list(dict.fromkeys([os.getcwd(), *(str(script.resolve().parent) for script in scripts)]))


def _plain(arm: str) -> str:
    return re.sub(r"[^\w.-]+", "-", arm).strip("-.") or "trial"


def _read(file: Path) -> Trial | None:
    """A trial made before, or None where there is none or it cannot be read."""
    try:
        return decode(Trial, json.loads(file.read_text(encoding="utf-8")), strict=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None
