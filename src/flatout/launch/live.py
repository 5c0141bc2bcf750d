"""Follows a run while it goes: tails the recordings, adds the latest telemetry, and keeps the view up to date."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from flatout.launch.process import in_foreground
from flatout.records.report import RunReport
from flatout.records.sample import Tick
from flatout.report.json import from_json
from flatout.report.live import LiveFigures, StatusRow, status_text
from flatout.store.recording import Recording, Tail
from flatout.store.run import StoredRun
from flatout.telemetry.procfile import list_folder

_WINDOW_S = 5.0
_REDRAW_S = 0.5
_UNKNOWN_SAMPLES = 0xFFFFFFFF
# Before that there is nothing to judge.
FEWEST_STEPS = 5
# Between two judgements: findings change in the first seconds, and rarely later.
_SHORTEST_S, _LONGEST_S = 15.0, 120.0
# Share of one core that judging may take, however long the run is. The first judgement is free: everybody waits for it,
# and it reads the source, which the next ones know.
_MOST_OF_A_CORE = 0.0005
# Seconds for the source, as the verdict at the end has.
_SOURCE_S = 0.3


@dataclass(frozen=True, slots=True)
class _Slice:
    """What one process recorded between two looks."""

    t_s: float
    steps: int
    samples: int | None
    wall_s: float
    phase_s: tuple[float, ...]
    starved_ms: float
    device_ms: float


class Follower:
    """Turns growing recordings into the figures of the last few seconds. `on_new` gets what each look has read."""

    def __init__(
        self,
        proc_dir: Path,
        clock: Callable[[], float] = time.perf_counter,
        on_new: Callable[[Recording], None] | None = None,
    ) -> None:
        self._proc_dir = proc_dir
        self._clock = clock
        self._on_new = on_new
        self._began_s = clock()
        self._tails: dict[str, Tail | None] = {}
        self._recent: dict[str, deque[_Slice]] = {}
        self._steps: dict[str, int] = {}
        self._phases: tuple[str, ...] = ()

    def figures(self, tick: Tick | None) -> LiveFigures:
        """Look for what is new; `tick` is the latest telemetry, if there is any."""
        now_s = self._clock()
        for name, tail in self._trainers():
            self._add(name, tail.poll(), now_s)
            while tail.is_behind:
                # There is more to read, so this is older than the last seconds.
                self._recent.pop(name, None)
                self._add(name, tail.poll(), now_s)
        slices = {name: _since(recent, now_s - _WINDOW_S) for name, recent in self._recent.items()}
        return LiveFigures(
            elapsed_s=now_s - self._began_s,
            steps=max(self._steps.values(), default=0),
            steps_per_s=_mean([_rate(s) for s in slices.values() if s]),
            samples_per_s=_samples_rate([s for s in slices.values() if s]),
            phases=self._shares([part for s in slices.values() for part in s]),
            starved_share=_starved([part for s in slices.values() for part in s]),
            **_device(tick),
        )

    def _trainers(self) -> list[tuple[str, Tail]]:
        for name in list_folder(self._proc_dir):
            if name not in self._tails:
                is_trainer = name.endswith(".rec") and not name.endswith(".lines.rec")
                self._tails[name] = Tail(self._proc_dir / name) if is_trainer else None
        return [(name, tail) for name, tail in self._tails.items() if tail is not None]

    def _add(self, name: str, new: Recording, now_s: float) -> None:
        if new.facts.get("role", "trainer") != "trainer":
            self._tails[name] = None
            return
        rows = new.records.get("step")
        if rows is None or not len(rows):
            return
        if self._on_new is not None:
            self._on_new(new)
        self._phases = new.phases
        self._steps[name] = self._steps.get(name, 0) + int(rows["steps"].sum())
        rows, device = _last_seconds(rows, new.records.get("device"))
        known = rows["samples"] != _UNKNOWN_SAMPLES
        self._recent.setdefault(name, deque()).append(
            _Slice(
                t_s=now_s,
                steps=int(rows["steps"].sum()),
                samples=int(rows["samples"][known].sum()) if known.any() else None,
                wall_s=float(rows["wall_ns"].sum()) / 1e9,
                phase_s=tuple(rows["phase_s"].sum(axis=0).tolist()),
                starved_ms=_total(device, "starved_ms"),
                device_ms=_total(device, "step_ms"),
            )
        )

    def _shares(self, slices: list[_Slice]) -> dict[str, float]:
        wall_s = sum(part.wall_s for part in slices)
        if not wall_s:
            return {}
        sums = [sum(column) for column in zip(*(part.phase_s for part in slices), strict=True)]
        return {name: value / wall_s for name, value in zip(self._phases, sums, strict=False)}


def _last_seconds(rows: Any, device: Any) -> tuple[Any, Any]:
    """Of what one look has read, the part that is of now: the first look at a run that goes on may find hours."""
    ends_s = (rows["start_ns"] + rows["wall_ns"]).astype(np.float64) * 1e-9
    is_recent = ends_s >= ends_s[-1] - _WINDOW_S
    # The device's account of a step comes a little after it: cut only where there is something to cut.
    if is_recent.all() or device is None:
        return rows[is_recent], device
    return rows[is_recent], device[device["index"] >= rows["index"][is_recent][0]]


def _since(recent: deque[_Slice], start_s: float) -> list[_Slice]:
    # The last slice stays however old it is: steps may be longer than the window.
    while len(recent) > 1 and recent[0].t_s < start_s:
        recent.popleft()
    return list(recent)


def _rate(slices: list[_Slice]) -> float | None:
    wall_s = sum(part.wall_s for part in slices)
    return sum(part.steps for part in slices) / wall_s if wall_s else None


def _samples_rate(ranks: list[list[_Slice]]) -> float | None:
    total = 0.0
    for slices in ranks:
        known = [part for part in slices if part.samples is not None]
        wall_s = sum(part.wall_s for part in known)
        if not wall_s:
            return None
        total += sum(part.samples or 0 for part in known) / wall_s
    return total if ranks else None


def _starved(slices: list[_Slice]) -> float | None:
    device_ms = sum(part.device_ms for part in slices)
    return sum(part.starved_ms for part in slices) / device_ms if device_ms else None


def _total(rows: Any, name: str) -> float:
    return 0.0 if rows is None else float(np.nansum(rows[name]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _device(tick: Tick | None) -> dict[str, Any]:
    if tick is None:
        return {}
    gpus = tick.gpu.gpus if tick.gpu is not None else ()
    power = [g.power_w / g.power_limit_w for g in gpus if g.power_w is not None and g.power_limit_w]
    memory = [
        g.memory_used_bytes / g.memory_total_bytes
        for g in gpus
        if g.memory_used_bytes is not None and g.memory_total_bytes
    ]
    cpu = [p.cpu_share for p in tick.processes if p.cpu_share is not None]
    return {
        "gpu_util_percent": _mean([g.util_percent for g in gpus]),
        "gpu_power_share": _mean(power),
        "gpu_memory_share": _mean(memory),
        "cpu_cores": sum(cpu) if cpu else None,
        "memory_share": tick.host.memory_used_share if tick.host is not None else None,
    }


def complete_tick(tick: Tick, last: Tick | None) -> Tick:
    """A source whose turn it was not keeps its last value."""
    if last is None:
        return tick
    kept = {name: getattr(tick, name) or getattr(last, name) for name in ("gpu", "host", "processes", "cgroup")}
    return replace(tick, **kept)


class View(Protocol):
    """Something that shows figures while the script runs."""

    def show(self, figures: LiveFigures) -> None: ...

    def close(self) -> None: ...


class StatusView:
    """The one-line view. Silent while another job has the terminal."""

    def __init__(self, fd: int, color: bool, unicode: bool) -> None:
        self._fd = fd
        self._unicode = unicode
        self._row = StatusRow(fd, color)
        self._before = signal.getsignal(signal.SIGTSTP)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, self._suspend)

    def show(self, figures: LiveFigures) -> None:
        if not in_foreground():
            return
        try:
            columns = os.get_terminal_size(self._fd).columns
        except OSError:
            return
        self._row.draw(status_text(figures, columns, self._unicode))

    def close(self) -> None:
        signal.signal(signal.SIGTSTP, self._before)
        self._row.erase()

    def _suspend(self, _: int, __: FrameType | None) -> None:
        """Ctrl-Z: the shell gets a whole terminal back; the row returns with the next figures."""
        self._row.erase()
        os.kill(os.getpid(), signal.SIGSTOP)


class LiveView:
    """Redraws a view from a thread of its own until closed. Trouble in it ends the view, nothing else."""

    def __init__(self, follower: Follower, view: View, judged: BackgroundVerdict | None = None) -> None:
        self._follower = follower
        self._view = view
        self._judged = judged
        self._tick: Tick | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-live", daemon=True)
        self._thread.start()

    def on_tick(self, tick: Tick) -> None:
        self._tick = complete_tick(tick, self._tick)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=2.0)
        if self._judged is not None:
            self._judged.close()
        self._view.close()

    def _run(self) -> None:
        try:
            while not self._ended.wait(_REDRAW_S):
                figures = self._follower.figures(self._tick)
                if self._judged is not None:
                    figures = replace(figures, report=self._judged.report(figures.steps))
                self._view.show(figures)
        except Exception:
            # The run is recorded without its view.
            self._ended.set()


# The verdict and the findings of a run that goes on, judged now and then.


class LiveVerdict:
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
        from flatout.diagnose.source_join import examine_run_and_source
        from flatout.problems.catalogue import problems

        problems()
        # Of the process: the source is read in a thread of its own.
        began_cpu_s = time.process_time()
        try:
            return examine_run_and_source(run, _SOURCE_S).report
        finally:
            if self._began_s is None:
                self._began_s = self._clock()
            else:
                self._spent_s += time.process_time() - began_cpu_s
            self._next_s = max(self._clock() + self._pause_s, self._began_s + self._spent_s / _MOST_OF_A_CORE)
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)


class BackgroundVerdict:
    """For a view that draws several times a second: it gets the last report, and never waits for a new one."""

    def __init__(self, path: Path) -> None:
        self._judging = LiveVerdict(path)
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
