"""`flatout run`: start the script, watch it, and say at the end where its time went.

The script comes first. It is started before anything else is set up, and whatever of ours fails costs a line of the
report, never the run or its exit code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout import __version__
from flatout.app.launch import Child, child_environment, command_line
from flatout.app.terminal import Terminal, say, terminal
from flatout.errors import FlatoutError
from flatout.store.directory import RunDirectory, create_run
from flatout.store.manifest import Manifest

if TYPE_CHECKING:
    from flatout.app.beside import Notices
    from flatout.app.live import Live
    from flatout.app.output import Output
    from flatout.records.report import RunReport

_SAY = {
    "unwatched": "flatout: cannot record ({error}): the script runs unwatched\n",
    "failed": "flatout: the verdict could not be made ({error}); the script's exit code is {code}, the run is in {path}\n",
    "interrupted": "flatout: interrupted before the verdict; the run is in {path}\n",
    "no_screen": "--live needs a terminal; the run went on without",
    "no_json": "{file!r} could not be written ({error}); the same is in {path}",
    "isolated": "python was started with {flag}, which keeps flatout out: leave it away to watch the script",
    "no_torch": "no process below this command imported a torch that flatout can watch",
    "no_step": "torch was imported, but no optimizer made a step",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user chose. `out` is the run's own directory, `json` a file or "-"."""

    out: Path | None = None
    json: str | None = None
    python: str | None = None
    name: str | None = None
    interval_s: float = 0.2
    telemetry: bool = True
    lines: bool = True
    live: bool = False
    quiet: bool = False
    verbose: bool = False


def watch(cmd: Sequence[str], options: Options) -> int:
    """Run `cmd` to its end under observation and return its exit code."""
    argv = command_line(cmd, options.python)
    try:
        run = create_run(_name(cmd, options.name), out=options.out)
        manifest = run.begin(Manifest(run.id, tuple(cmd), os.getcwd(), time.time(), flatout=__version__))
    except OSError as error:
        say(_SAY["unwatched"].format(error=error))
        with Child(argv, os.environ) as child:
            return child.wait()
    return _Watched(run, manifest, options, terminal(os.environ)).watch(argv)


def _name(cmd: Sequence[str], wished: str | None) -> str:
    """A name for the run: the script's, wherever it stands in the command."""
    if wished:
        return wished.replace(".", "-")
    if cmd[0].startswith("-m"):
        return (cmd[0][2:] or cmd[1]).replace(".", "-")
    return next((word for word in cmd if word.endswith(".py")), cmd[0])


class _Watched:
    """One run from its start to its verdict."""

    def __init__(self, run: RunDirectory, manifest: Manifest, options: Options, screen: Terminal) -> None:
        self._run = run
        self._manifest = manifest
        self._options = options
        self._terminal = screen
        self._cwd = Path.cwd()

    def watch(self, argv: Sequence[str]) -> int:
        began_s = time.perf_counter()
        settings = {} if self._options.lines else {"lines_hz": 0.0}
        output = self._output()
        child = Child(argv, child_environment(os.environ, self._run.work, settings), *(output.fds if output else ()))
        with child:
            # Only now, beside the running script: this takes a while.
            from flatout.app.beside import Beside, Notices, captured_environment

            notices = Notices()
            beside = Beside(self._run.work, notices)
            if output:
                output.started()
            beside.start_live(lambda: self._live(output)) if self._wants_view else None
            if self._options.telemetry:
                beside.start_sampling(child.pid, self._options.interval_s)
            environment: dict[str, Any] = {}
            with notices.unless("environment not captured"):
                environment = captured_environment(self._cwd)
            code = child.wait()
            wall_s = time.perf_counter() - began_s
            beside.stop()
            if output:
                output.replay()
        with notices.unless("data files not located"):
            environment |= within(2.0, beside.measured)
        if self._options.live and output is None:
            notices.append(_SAY["no_screen"])
        self._conclude(code, wall_s, environment, notices, argv)
        return code

    @property
    def _wants_view(self) -> bool:
        return self._terminal.fd is not None and not self._options.quiet

    def _output(self) -> Output | None:
        """For the full screen the script's output has to be caught; else it goes where it always went."""
        if not self._options.live or not self._wants_view:
            return None
        from flatout.app.output import Output

        try:
            return Output()
        except OSError:
            return None

    def _live(self, output: Output | None) -> Live:
        from flatout.app.live import Follower, Live, StatusView

        assert self._terminal.fd is not None
        follower = Follower(self._run.work / "proc")
        view = output.screen if output else StatusView(self._terminal.fd, self._terminal.color, self._terminal.unicode)
        return Live(follower, view)

    def _conclude(self, code: int, wall_s: float, environment: dict[str, Any], notices: Notices, argv: Sequence[str]) -> None:
        """From here on the script has ended: a Ctrl-C now is for us."""
        try:
            self._manifest = self._run.finish(
                dataclasses.replace(
                    self._manifest,
                    ended_unix_s=time.time(),
                    exit_code=code,
                    wall_s=wall_s,
                    environment=environment,
                    notices=(*self._manifest.notices, *notices),
                )
            )
            report = self._summarised(argv)
            self._publish(report)
        except KeyboardInterrupt:
            say(_SAY["interrupted"].format(path=self._run.path))
        except Exception as error:
            say(_SAY["failed"].format(error=f"{type(error).__name__}: {error}", code=code, path=self._run.path))

    def _summarised(self, argv: Sequence[str]) -> RunReport:
        from flatout.diagnose.summary import summarise
        from flatout.store.run import StoredRun

        stored = StoredRun(self._run.path)
        report = summarise(stored)
        if report.run.steps == 0:
            report = dataclasses.replace(report, notices=(why_no_step(argv, len(stored.recordings)), *report.notices))
        return report

    def _publish(self, report: RunReport) -> None:
        from flatout.report.json import to_dict

        value = to_dict(report)
        self._run.write_summary(value)
        notices: list[str] = []
        if self._options.json is not None:
            try:
                _write_json(self._options.json, value)
            except OSError as error:
                notices.append(_SAY["no_json"].format(file=self._options.json, error=error, path=self._run.path))
        if self._options.quiet:
            for notice in notices:
                say(f"flatout: {notice}\n")
            return
        from flatout.report.terminal import render

        say(
            render(
                dataclasses.replace(report, notices=(*report.notices, *notices)),
                width=self._terminal.width,
                color=self._terminal.color,
                unicode=self._terminal.unicode,
                cwd=self._cwd,
                verbose=self._options.verbose,
                kept=os.path.relpath(self._run.path) if self._run.path.is_relative_to(self._cwd) else str(self._run.path),
            )
        )


def why_no_step(argv: Sequence[str], recordings: int) -> str:
    """The likeliest reason why nothing was recorded."""
    if recordings:
        return _SAY["no_step"]
    if "python" in os.path.basename(argv[0]):
        for word in argv[1:]:
            if not word.startswith("-") or word in ("-m", "-c", "-"):
                break
            for flag in "ISE":
                if flag in word[1:] and not word.startswith("--"):
                    return _SAY["isolated"].format(flag=f"-{flag}")
    return _SAY["no_torch"]


def _write_json(file: str, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2) + "\n"
    if file == "-":
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    else:
        Path(file).write_text(text, encoding="utf-8")


def within(limit_s: float, function: Any) -> Any:
    """The function's result if it comes in time; a look at a dead network disk may never end."""
    import threading

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), name="flatout-look", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not results:
        raise FlatoutError(f"no answer within {limit_s:g} s")
    return results[0]
