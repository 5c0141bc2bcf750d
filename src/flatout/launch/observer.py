"""What goes on beside the running script: telemetry into the run's files, and the view on the terminal.

Nothing here may reach the script: each part is tried on its own, and what fails leaves one line behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flatout.launch import environment
from flatout.launch.environment import fresh_memory_ms
from flatout.launch.live import BackgroundVerdict, Follower, LiveView, StatusView, View
from flatout.launch.roofline import latest_roofline
from flatout.launch.terminal import Notices, Terminal
from flatout.records.message import Message, message
from flatout.records.sample import Tick
from flatout.store.directory import RunDirectory
from flatout.store.manifest import Manifest
from flatout.store.redaction import redact_environment
from flatout.store.rows import RowWriter
from flatout.telemetry.cgroup import CgroupSampler
from flatout.telemetry.disk import filesystem_of
from flatout.telemetry.sampling import Sampling, columns, rows
from flatout.words.codec import encode

if TYPE_CHECKING:
    from flatout.launch.metrics_server import MetricsServer
    from flatout.launch.terminal import CapturedOutput

_T = TypeVar("_T")
_PACKAGE = Path(__file__).resolve().parents[1]
_LOOK_LIMIT_S = 2.0


class TelemetryFiles:
    """Files each sample under its source. A file is made when its first row comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, RowWriter | None] = {}

    def on_tick(self, tick: Tick) -> None:
        for source, lines in rows(tick).items():
            writer = self._writer(source)
            if writer is not None:
                for line in lines:
                    writer.append(line)

    def _writer(self, source: str) -> RowWriter | None:
        if source not in self._writers:
            # Set first: a file that cannot be made is not tried again at every tick.
            self._writers[source] = None
            self._writers[source] = RowWriter(self._folder / f"{source}.rows", columns(source))
        return self._writers[source]

    def close(self) -> int:
        """Returns how many rows did not fit on the disk."""
        writers = [writer for writer in self._writers.values() if writer is not None]
        for writer in writers:
            writer.close()
        return sum(writer.dropped for writer in writers)


class Observer:
    """Telemetry, view and captured environment of one run, of which `manifest` is what is known at its start."""

    def __init__(self, run: RunDirectory, manifest: Manifest, notices: Notices) -> None:
        self._run = run
        self._manifest = manifest
        self._work = run.work
        self._notices = notices
        self._gpus_kept = False
        self._named = 0
        self._filing = TelemetryFiles(run.work / "telemetry")
        self._sampling: Sampling | None = None
        self._live: LiveView | None = None
        self._exposed: MetricsServer | None = None
        self._captured: dict[str, Any] = {}

    def show_line(self, on: Terminal) -> None:
        with self._notices.unless(message("run.no_live_line")):
            assert on.fd is not None
            self._show(StatusView(on.fd, on.color, on.unicode))

    def show_screen(self, output: CapturedOutput) -> None:
        with self._notices.unless(message("run.no_live_view")):
            output.screen.open()
            self._show(output.screen, BackgroundVerdict(self._run.path))

    def show(self, view: View) -> None:
        with self._notices.unless(message("run.no_live_view")):
            self._show(view)

    def _show(self, view: View, judged: BackgroundVerdict | None = None) -> None:
        self._live = LiveView(Follower(self._work / "proc"), view, judged)

    def expose(self, exposed: MetricsServer, run: str) -> None:
        with self._notices.unless(message("run.no_metrics")):
            exposed.start(run, self._work / "proc")
            self._exposed = exposed

    def sample(self, pid: int, interval_s: float) -> None:
        with self._notices.unless(message("run.no_telemetry")):
            self._sampling = Sampling(pid, interval_s, self._on_tick)
            self._sampling.start()

    def _on_tick(self, tick: Tick) -> None:
        if self._live is not None:
            self._live.on_tick(tick)
        if self._exposed is not None:
            self._exposed.on_tick(tick)
        self._filing.on_tick(tick)
        if not self._gpus_kept and self._captured and tick.gpu is not None and tick.gpu.facts:
            self._gpus_kept = True
            self._keep_names("run.gpu_names_late")
        if tick.neighbours and self._captured and self._named < len(self._neighbours()["neighbours"]):
            self._named = len(self._neighbours()["neighbours"])
            self._keep_names("run.neighbours_late")

    def capture_environment(self, cwd: Path) -> None:
        """Machine, limits, commit and variables, as they are when the run begins."""
        with self._notices.unless(message("run.environment_not_captured")):
            limits = CgroupSampler().sample()
            captured = {
                **environment.machine_facts(),
                "cpu_quota_cores": limits.cpu_quota_cores,
                "memory_limit_bytes": limits.memory_limit_bytes,
                "fresh_memory_ms_per_mib": fresh_memory_ms(),
                "git_commit": environment.git_commit(cwd),
                "variables": redact_environment(environment.speed_variables(os.environ)),
            }
            self._keep(captured)
            self._captured = captured  # last: from here on the sampling thread may keep more

    def _keep(self, known: dict[str, Any]) -> None:
        """At once, not at the end: a run is judged while it goes on, and after a crash."""
        self._run.update(replace(self._manifest, environment=known))

    def _keep_names(self, trouble: str) -> None:
        with self._notices.unless(Message(trouble)):
            self._keep({**self._captured, **self._gpus(), **self._neighbours()})

    def stop(self) -> None:
        with self._notices.unless(message("run.view_ended_badly")):
            if self._live is not None:
                self._live.close()
        with self._notices.unless(message("run.metrics_ended_badly")):
            if self._exposed is not None:
                self._exposed.close()
        with self._notices.unless(message("run.telemetry_ended_badly")):
            if self._sampling is not None:
                self._sampling.stop()
                self._notices += self._sampling.notices
        dropped = self._filing.close()
        if dropped:
            self._notices.append(message("run.samples_dropped", count=dropped))

    def environment(self) -> dict[str, Any]:
        """What was captured at the start, and what telemetry has learnt since."""
        found = dict(self._captured)
        if self._sampling is not None:
            found |= self._gpus() | self._neighbours()
            found["telemetry_ms_per_tick"] = self._sampling.cpu_ms_per_tick
            ours = (str(self._work) + os.sep, str(_PACKAGE) + os.sep)
            files = [file for file in self._sampling.data_files if not file.startswith(ours)]
            with self._notices.unless(message("run.filesystems_not_known")):
                found["data_filesystems"] = _run_within(_LOOK_LIMIT_S, lambda: data_filesystems(files))
        return found

    def _gpus(self) -> dict[str, Any]:
        sampling = self._sampling
        if sampling is None:
            return {}
        names = [facts.name for facts in sampling.gpu_facts]
        measured = [roofline for name in dict.fromkeys(names) if (roofline := latest_roofline(name)) is not None]
        rooflines = {"rooflines": [encode(roofline) for roofline in measured]} if measured else {}
        return {"gpus": names, "driver": sampling.driver, **rooflines}

    def _neighbours(self) -> dict[str, Any]:
        """By number: a file of rows holds figures only."""
        names = {} if self._sampling is None else self._sampling.neighbours
        return {"neighbours": {str(pid): name for pid, name in names.items()}}


def data_filesystems(files: Sequence[str]) -> list[dict[str, Any]]:
    """The file systems these files are on, with how many of them each holds."""
    found: dict[str, dict[str, Any]] = {}
    # A folder stands for its files: asking the kernel once each would be slow on a network disk.
    for folder in sorted({os.path.dirname(file) for file in files}):
        facts = filesystem_of(folder)
        if facts is None:
            continue
        entry = found.setdefault(facts.mount_point, {**asdict(facts), "files": 0})
        entry["files"] += sum(os.path.dirname(file) == folder for file in files)
    return list(found.values())


def _run_within(limit_s: float, function: Callable[[], _T]) -> _T:
    """The function's result if it comes in time; a look at a dead network disk may never end."""
    results: list[_T] = []
    thread = threading.Thread(target=lambda: results.append(function()), name="flatout-look", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not results:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return results[0]
