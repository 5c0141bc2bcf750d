"""The runs that a dashboard shows, and the short name each has in its addresses."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from flatout.store.directory import SUMMARY, run_paths
from flatout.store.manifest import NAME
from flatout.store.run import RunLine, run_line

_AGAIN_AFTER_S = 2.0
# A run that goes on changes in its recordings, not in its manifest.
_RUNNING_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run and its short name. The name is made from the path: a run's own name may hold any character."""

    key: str
    path: Path
    line: RunLine


class RunList:
    """All runs under `root` (default: here, and the fallback place), or the one at `only`."""

    def __init__(self, root: Path | None = None, only: Path | None = None) -> None:
        self._root = root
        self._only = only
        self._lock = threading.Lock()
        self._looked_s = 0.0
        self._known: dict[Path, tuple[tuple[int, ...], float, ListedRun]] = {}

    def runs(self) -> tuple[ListedRun, ...]:
        """Newest first. Looked for anew every few seconds, whoever asks."""
        with self._lock:
            now_s = time.monotonic()
            if not self._looked_s or now_s - self._looked_s >= _AGAIN_AFTER_S:
                self._look(now_s)
                self._looked_s = now_s
            found = [shelved for _, _, shelved in self._known.values()]
            return tuple(sorted(found, key=lambda shelved: -(shelved.line.started_unix_s or 0.0)))

    def find(self, key: str) -> Path | None:
        return next((shelved.path for shelved in self.runs() if shelved.key == key), None)

    def _look(self, now_s: float) -> None:
        paths = run_paths(self._root) if self._only is None else [self._only]
        before, self._known = self._known, {}
        for path in paths:
            mark = tuple(_changed_ns(path / name) for name in (NAME, SUMMARY))
            known = before.get(path)
            is_growing = known is not None and known[2].line.state == "running"
            if known is None or known[0] != mark or (is_growing and now_s - known[1] >= _RUNNING_AGAIN_S):
                known = (mark, now_s, ListedRun(key_of(path), path, run_line(path)))
            self._known[path] = known


def key_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
