"""One run, read as it grows: one reader serves all who look at it."""

from __future__ import annotations

import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from flatout.dashboard.charts import Charts
from flatout.launch.live import Follower
from flatout.report.live import LiveFigures
from flatout.store.directory import SUMMARY, is_alive, is_recorded
from flatout.store.manifest import NAME, Manifest, read_manifest
from flatout.store.rows import GrowingRows
from flatout.store.run import StoredRun
from flatout.words import english

# The container's limit first: it tells whether the machine's memory counts.
_SOURCES = ("cgroup", "gpu", "host", "processes", "disks")
_LOOKS_BETWEEN_STATES = 3
_CONCLUDING_S = 30.0
# The report is judged and told apart.
_NOW = tuple(field.name for field in fields(LiveFigures) if field.name != "report")

State = Literal["running", "finished", "broken"]


class RunReader:
    """Follows the run at `path`. Not for two threads at once. Raises FlatoutError where there is no such run."""

    def __init__(self, path: Path) -> None:
        run = StoredRun(path)
        self.path = path
        self.manifest: Manifest = run.manifest
        self.state: State = "running"
        self._charts = Charts(run.manifest.host)
        self._rows = {source: GrowingRows(run.records_at / "telemetry" / f"{source}.rows") for source in _SOURCES}
        self._follower = Follower(run.records_at / "proc", on_new=self._charts.add_steps)
        self._figures = LiveFigures(0.0)
        self._looks = 0
        self._manifest_mark = _mark(path)

    def look(self) -> dict[str, Any]:
        """Read what is new and return it: the figures of now, and the ends of the curves that have changed."""
        # Asked before reading: what a run wrote before its end is then read before its end is told.
        self._look_at_state()
        self._looks += 1
        for source, growing in self._rows.items():
            self._add_rows(source, growing)
        self._figures = self._follower.figures(None)
        bins = self._charts.bins
        widened, start = bins.widened, bins.changed_from
        told = {"from": start, "widened": widened, "columns": self._charts.columns(start), "now": self._now()}
        bins.settle()
        return told

    def _add_rows(self, source: str, growing: GrowingRows) -> None:
        is_first = True
        while is_first or growing.is_behind:
            is_first = False
            rows = growing.poll()
            if rows is not None:
                self._charts.add_rows(source, rows)

    @property
    def steps(self) -> int:
        """How many were seen, at the last look."""
        return self._figures.steps

    @property
    def bin_s(self) -> float:
        """How fine the curves are."""
        return self._charts.bins.width_s

    def history(self) -> dict[str, Any]:
        """Every curve from the start: for one who comes later."""
        bins = self._charts.bins
        return {"from": 0, "widened": bins.widened, "columns": self._charts.columns(0), "now": self._now()}

    def facts(self) -> dict[str, Any]:
        """Which run this is."""
        manifest = self.manifest
        return {
            "id": manifest.id,
            "argv": manifest.argv,
            "cwd": manifest.cwd,
            "state": self.state,
            "exit_code": manifest.exit_code,
            "started_unix_s": manifest.started_unix_s,
            "notices": [english(notice) for notice in manifest.notices],
        }

    def _look_at_state(self) -> None:
        mark = _mark(self.path)
        is_new = mark is None or mark != self._manifest_mark
        if is_new:
            self._manifest_mark = mark
            self.manifest = read_manifest(self.path)
        if self.manifest.state == "finished":
            self.state = "running" if self._is_concluding() else "finished"
        elif is_new or self._looks % _LOOKS_BETWEEN_STATES == 0:
            self.state = "running" if is_recorded(self.path, self.manifest) else "broken"

    def _is_concluding(self) -> bool:
        """The script has ended a moment ago, and its verdict is still to come from the process that watched it."""
        manifest = self.manifest
        if (self.path / SUMMARY).exists() or manifest.pid is None or manifest.ended_unix_s is None:
            return False
        is_recent = time.time() - manifest.ended_unix_s < _CONCLUDING_S
        return is_recent and is_alive(manifest.pid, manifest.pid_start)

    def look_at_state_next(self) -> None:
        """The run is known to have ended: whether it has is asked again at the next look."""
        self._looks = 0

    def _now(self) -> dict[str, Any]:
        figures = {name: getattr(self._figures, name) for name in _NOW}
        told = {"elapsed_s": self._elapsed_s(), "queue": self._charts.queue_now()}
        return {**figures, **self._charts.latest, **told}

    def _elapsed_s(self) -> float:
        manifest = self.manifest
        if manifest.wall_s is not None:
            return manifest.wall_s
        return max(0.0, (manifest.ended_unix_s or time.time()) - manifest.started_unix_s)


def _mark(path: Path) -> tuple[int, int] | None:
    """What changes whenever the manifest is written; None where there is none."""
    try:
        found = os.stat(path / NAME)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
