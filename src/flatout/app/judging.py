"""What a run comes to while it goes on: the verdict and the findings, judged now and then and never in a hurry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from flatout.records.report import RunReport
from flatout.report.json import from_json
from flatout.store.run import StoredRun

# Before that there is nothing to judge.
FEWEST_STEPS = 5
# Between two judgements: what is found in the first seconds changes soon, later it seldom does.
_SHORTEST_S, _LONGEST_S = 15.0, 120.0
# Of one core: what judging may take over time, however long the run has become. The first judgement is free: it is the
# one that everybody waits for, and reads the source, which the next ones know.
_MOST_OF_A_CORE = 0.0005
# As much as the verdict at the end has for the source.
_SOURCE_S = 0.3


class Judging:
    """Judges the run at `path` again and again. Each judgement sets when the next one may begin."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        # When the first judgement was made; what the others took of a core since.
        self._began_s: float | None = None
        self._spent_s = 0.0
        self._pause_s = _SHORTEST_S
        self._next_s = 0.0

    def is_due(self, steps: int) -> bool:
        return steps >= FEWEST_STEPS and self._clock() >= self._next_s

    def judge(self) -> RunReport | None:
        """The report so far; None where it cannot be told. Takes a while: for a thread of its own."""
        try:
            run = StoredRun(self._path)
            if run.manifest.state == "finished" and run.summary is not None:
                return from_json(run.summary)  # what the terminal showed
            return self._again(run)
        except Exception:
            return None  # half written, damaged, or deleted meanwhile: the next judgement may go better

    def _again(self, run: StoredRun) -> RunReport:
        # The catalogue takes long to import, and nobody may ever ask. That it does is no part of the cost below.
        from flatout.diagnose.merging import merged
        from flatout.diagnose.summary import examine
        from flatout.problems.catalogue import problems

        problems()
        # Of the process: the source is read in a thread of its own.
        began_cpu_s = time.process_time()
        try:
            return merged(run, examine(run), limit_s=_SOURCE_S).report
        finally:
            if self._began_s is None:
                self._began_s = self._clock()
            else:
                self._spent_s += time.process_time() - began_cpu_s
            self._next_s = max(self._clock() + self._pause_s, self._began_s + self._spent_s / _MOST_OF_A_CORE)
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)


class JudgedBeside:
    """The same for a view that draws several times a second: it gets the last report, and never waits for one."""

    def __init__(self, path: Path) -> None:
        self._judging = Judging(path)
        self._report: RunReport | None = None
        self._thread: threading.Thread | None = None

    def report(self, steps: int) -> RunReport | None:
        """The last one, and a new one is begun where it is time for it."""
        is_at_work = self._thread is not None and self._thread.is_alive()
        if not is_at_work and self._judging.is_due(steps):
            self._thread = threading.Thread(target=self._judge, name="flatout-judge", daemon=True)
            self._thread.start()
        return self._report

    def _judge(self) -> None:
        self._report = self._judging.judge() or self._report

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(timeout=2.0)
