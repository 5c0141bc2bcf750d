"""`flatout run`: start the script, watch it, and say at the end where its time went.

The script comes first. It is started before anything else is set up, and whatever of ours fails costs a line of the
report, never the run or its exit code.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flatout import __version__
from flatout.errors import FlatoutError
from flatout.experiment.request import REMEDIES
from flatout.launch.process import Child, child_environment, command_line, hold_end_signals, reap_shared_memory
from flatout.launch.terminal import Notices, detect_terminal, write_stderr
from flatout.records.message import message
from flatout.store.directory import RunDirectory, create_run
from flatout.store.manifest import Manifest

# What takes long to import is imported beside the running script.
if TYPE_CHECKING:
    from flatout.dashboard.companion import Companion
    from flatout.launch.live import View
    from flatout.launch.metrics_server import MetricsServer
    from flatout.launch.observer import Observer
    from flatout.launch.process import LookLimit
    from flatout.launch.profile import Profile
    from flatout.launch.terminal import CapturedOutput

# Modules that start another script: the run is named after that.
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user chose. `out` is the run's own directory, `json` a file or "-"."""

    out: Path | None = None
    json: str | None = None
    python: str | None = None
    name: str | None = None
    interval_s: float = 0.2
    telemetry: bool = True
    lines: bool = True
    stages: bool = False
    window: bool = True
    live: bool = False
    quiet: bool = False
    verbose: bool = False
    profile: Profile | None = None
    # The dashboard that goes along (--serve): it listens already.
    companion: Companion | None = None
    # The figures for Prometheus (--metrics-port): the same.
    exposed: MetricsServer | None = None
    # Where the look ends before the script does (--steps, --for).
    limit: LookLimit | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """For a script that is ours to show off: what it prints goes to a file, `view` is shown, its time is limited."""

    log_fd: int
    view: View | None
    limit_s: float


def run_command(cmd: Sequence[str], options: RunOptions, stage: Stage | None = None) -> int:
    """Run `cmd` to its end under observation and return its exit code."""
    argv = command_line(cmd, options.python)
    try:
        run = create_run(run_name(cmd, options.name), out=options.out)
        manifest = run.begin(Manifest(run.id, tuple(cmd), os.getcwd(), time.time(), flatout=__version__))
    except OSError as error:
        write_stderr(f"flatout: cannot record ({error}): the script runs unwatched\n")
        with Child(argv, os.environ) as child:
            return child.wait()
    with hold_end_signals():
        return _WatchedRun(run, manifest, options, stage).to_the_end(argv)


def run_name(cmd: Sequence[str], wished: str | None) -> str:
    """A name for the run: the script's, wherever it stands in the command."""
    if wished:
        return wished.replace(".", "-")
    script = next((word for word in cmd if word.endswith(".py")), None)
    if cmd[0].startswith("-m"):
        module = cmd[0][2:] or cmd[1]
        return script if script is not None and module in _LAUNCHERS else module.replace(".", "-")
    return script or cmd[0]


class _WatchedRun:
    """One run from its start to its verdict."""

    def __init__(self, run: RunDirectory, manifest: Manifest, options: RunOptions, stage: Stage | None) -> None:
        self._run = run
        self._stage = stage
        self._manifest = manifest
        self._options = options
        self._terminal = detect_terminal(os.environ)
        self._notices = Notices()

    def to_the_end(self, argv: Sequence[str]) -> int:
        began_s = time.perf_counter()
        settings: dict[str, object] = {} if self._options.lines else {"lines_hz": 0.0}
        if self._options.stages:
            settings["stages"] = True
        if not self._options.window:
            settings["window"] = False
        if self._options.limit is not None:
            settings |= self._options.limit.settings()
        output = self._catch_output()
        fds = output.fds if output else (None, None)
        if self._stage is not None:
            fds = (self._stage.log_fd, self._stage.log_fd)
        self._invite(output)
        try:
            with Child(argv, child_environment(self._environ(), self._run.work, settings), *fds) as child:
                beside = self._begin_beside(child.pid, output)
                code = self._wait_for(child)
                wall_s = time.perf_counter() - began_s
                self._end_beside(beside, output)
        except FlatoutError:
            self._run.finish(replace(self._manifest, ended_unix_s=time.time(), notices=(message("run.not_started"),)))
            raise
        self._conclude(argv, code, wall_s, beside)
        if self._options.companion is not None:
            self._options.companion.stop()
        return code

    def _wait_for(self, child: Child) -> int:
        """Its exit code; 0 if it ended because it was asked to."""
        if self._stage is not None:
            with child.limited_to(self._stage.limit_s):
                return child.wait()
        if self._options.limit is None:
            return child.wait()
        from flatout.launch.process import EarlyEnd

        with EarlyEnd(self._options.limit, self._run.work, child.send) as ending:
            code = child.wait()
        told = tuple(ending.conclude(code))
        self._notices += told
        return 0 if told else code

    def _invite(self, output: CapturedOutput | None) -> None:
        """The address of the dashboard, also where the full screen would hide it."""
        if self._options.companion is not None:
            words = self._options.companion.invitation(self._run.path)
            write_stderr(words)
            if output is not None:
                # Broken where the screen would cut it off: all of it is needed.
                columns, _ = output.screen.log_size
                lines = (line[at : at + columns] for line in words.splitlines() for at in range(0, len(line), columns))
                output.screen.log.feed("".join(f"{line}\n" for line in lines).encode())

    def _environ(self) -> Mapping[str, str]:
        """The user's environment, with the remedies that were asked for now and none from a run around this one."""
        plain = {name: value for name, value in os.environ.items() if name != REMEDIES}
        profile = self._options.profile
        if profile is None:
            return plain
        self._notices += profile.notices
        return {**plain, REMEDIES: json.dumps(profile.values)}

    def _catch_output(self) -> CapturedOutput | None:
        """For the full screen the script's output has to be caught; else it goes where it always went."""
        if not self._options.live or self._options.quiet or self._stage is not None:
            return None
        if self._terminal.fd is None:
            self._notices.append(message("run.live_needs_terminal"))
            return None
        with self._notices.unless(message("run.output_not_caught")):
            from flatout.launch.terminal import CapturedOutput

            return CapturedOutput()
        return None

    def _begin_beside(self, pid: int, output: CapturedOutput | None) -> Observer | None:
        """Telemetry and view; the script is running already and must not notice if they fail."""
        if output is not None:
            output.started()
        if self._options.companion is not None:
            with self._notices.unless(message("run.no_dashboard")):
                self._options.companion.start(self._run.path)
        with self._notices.unless(message("run.no_telemetry_no_view")):
            from flatout.launch.observer import Observer

            beside = Observer(self._run, self._manifest, self._notices)
            if self._stage is not None:
                if self._stage.view is not None:
                    beside.show(self._stage.view)
            elif output is not None:
                beside.show_screen(output)
            elif self._terminal.fd is not None and not self._options.quiet:
                beside.show_line(self._terminal)
            if self._options.exposed is not None:
                beside.expose(self._options.exposed, self._run.id)
            if self._options.telemetry:
                beside.sample(pid, self._options.interval_s)
            beside.capture_environment(Path.cwd())
            return beside
        return None

    def _end_beside(self, beside: Observer | None, output: CapturedOutput | None) -> None:
        if beside is not None:
            with self._notices.unless(message("run.telemetry_ended_badly")):
                beside.stop()
        if output is not None:
            with self._notices.unless(message("run.output_not_replayed")):
                output.replay()

    def _conclude(self, argv: Sequence[str], code: int, wall_s: float, beside: Observer | None) -> None:
        """The script has ended: a Ctrl-C from here on is for us."""
        try:
            ended = replace(self._manifest, ended_unix_s=time.time(), exit_code=code, wall_s=wall_s)
            environment = beside.environment() if beside is not None else {}
            notices = (*ended.notices, *self._notices)
            self._run.finish(replace(ended, environment=environment, notices=notices))
            from flatout.launch.verdict import ReportOutput, judge_finished_run, publish_report

            options = self._options
            # Looked at again: the terminal's size may have changed meanwhile.
            output = ReportOutput(detect_terminal(os.environ), options.json, options.quiet, options.verbose)
            publish_report(judge_finished_run(self._run.path, argv), self._run, output)
            reap_shared_memory()
        except KeyboardInterrupt:
            write_stderr(f"flatout: interrupted before the verdict; the run is in {self._run.path}\n")
        except Exception as error:
            write_stderr(f"flatout: no verdict ({type(error).__name__}: {error}); the run is in {self._run.path}\n")
