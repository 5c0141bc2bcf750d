"""The kernels of one sampled step on a GPU: how long each ran, and what the training thread did when it launched them.

torch's own profiler records them (Kineto, by CUPTI). Kernels and their launches alone are asked for: recording torch's
operations as well makes the step and the reading several times as long. A launch belongs to the line that ran then.

CUPTI is taken down afterwards. Left in place, it makes every launch slower for the rest of the run: on the host of an
H200, 6.4 µs became 9 to 12. To take it down and set it up several times beside CUDA graphs is known to crash with
CUDA 12, so a process has one such window (a second one where the first came to nothing), and none once it has captured
a graph.
"""

from __future__ import annotations

import math
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from ..collection import no_collection
from ..tracer import clock

# What the training thread did from a moment on: a phase, and what of it the watcher wants to know later.
Moment = tuple[float, str, Any]

# What a window is taken to cost: to set CUPTI up and take it down, and for each launch to record it, to read it and to
# find its line. Measured on an H200's host: 45 ms for 851 launches, 75 ms for 1,278.
FIXED_S, LAUNCH_S = 0.04, 0.000035
# Kernels are launched for each autograd node of a step, forward, backward and optimizer together.
LAUNCHES_PER_NODE = 3.0
# What recording adds to each launch.
_RECORDING_S = 0.000004
_TEARDOWN, _TAKES_S = "TEARDOWN_CUPTI", 2.0
# Read once, when the profiler is first set up.
_LOG_LEVEL, _NO_LOG = "KINETO_LOG_LEVEL", "99"
_MOST_ROWS, _LONGEST_NAME = 400, 240
_MOST_ATTEMPTS = 2
_CUDA = 1  # torch's number of the kind of device


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, copy or fill on the device. Seconds; `launched_s` on the clock of the training thread."""

    name: str
    launched_s: float
    begun_ns: int
    ended_ns: int

    @property
    def seconds(self) -> float:
        return 1e-9 * (self.ended_ns - self.begun_ns)


@contextmanager
def _quiet_profiler() -> Iterator[None]:
    """torch's profiler sets itself up within: some versions write a line into the script's errors each time."""
    was_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, _NO_LOG)
    try:
        yield
    finally:
        if not was_set:
            os.environ.pop(_LOG_LEVEL, None)


def are_graphs_compiled() -> bool:
    """The compiler replays CUDA graphs, which taking CUPTI down does not go with."""
    return "torch._inductor.cudagraph_trees" in sys.modules


class Teardown:
    """Asks torch, by its environment variable, to take CUPTI down behind a window.

    Else every launch costs more from then on: 11 µs for 8 on an H200's host. CUPTI goes in a thread of torch's, at one
    of the next calls of CUDA, and that thread reads the variable once more when it is done: found unset, it sets CUPTI
    up again. So the variable stays for a while.
    """

    def __init__(self) -> None:
        self._before: str | None = None
        self._is_held = False
        self._due_s = math.inf

    def hold(self) -> None:
        if not self._is_held:
            self._before, self._is_held = os.environ.get(_TEARDOWN), True
            os.environ[_TEARDOWN] = "1"
        self._due_s = math.inf

    def let_go(self) -> None:
        self._due_s = clock() + _TAKES_S

    def end(self, now: float = math.inf) -> None:
        """Put the variable back, if it is time to."""
        if not self._is_held or now < self._due_s:
            return
        self._is_held, self._due_s = False, math.inf
        if self._before is None:
            os.environ.pop(_TEARDOWN, None)
        else:
            os.environ[_TEARDOWN] = self._before


# One for all windows of the process: one may open while CUPTI still goes behind another.
teardown = Teardown()


class Profiler:
    """torch's profiler, set up for one window and taken down with CUPTI.

    There is one in a process: windows wait for each other. Also for a window over the host alone: where CUPTI was set
    up before, torch sets it up again.
    """

    _open: ClassVar[int] = 0

    def __init__(self, torch: Any) -> None:
        self._autograd = torch._C._autograd
        self.is_open = False

    @classmethod
    def is_taken(cls) -> bool:
        """Has another window of ours torch's profiler just now?"""
        return cls._open > 0

    def open(self, config: Any, activities: set[Any]) -> None:
        teardown.hold()
        try:
            with _quiet_profiler():
                self._autograd._prepare_profiler(config, activities)
                self._autograd._enable_profiler(config, activities)
            self.is_open = True
            Profiler._open += 1
        finally:
            if not self.is_open:
                teardown.let_go()

    def leave_to_parent(self) -> None:
        """In a forked child: one that is open is not ours."""
        if self.is_open:
            self._is_over()
            teardown.end()

    def _is_over(self) -> None:
        self.is_open = False
        Profiler._open -= 1

    def close(self) -> Any:
        self._is_over()
        try:
            return self._autograd._disable_profiler()
        finally:
            teardown.let_go()


class KernelWindow:
    """One window. Names of torch that are its own business may be missing: then there is none."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profiler = Profiler(torch)
        self.is_spent = False
        self._attempts = 0
        self.cost_s = 0.0
        self._waited_s = 0.0  # for what the device had to do anyway
        self._begun_s = self._ended_s = 0.0

    @property
    def is_open(self) -> bool:
        return self._profiler.is_open

    def why_not(self) -> str:
        """What speaks against one now; empty: nothing."""
        torch = self._torch
        if torch.version.cuda is None and torch.version.hip is None:
            return "no_device"
        if are_graphs_compiled():
            return "cuda_graphs"
        if torch.autograd._profiler_enabled():
            return "profiled"
        return ""

    def open(self) -> None:
        """From here on kernels are recorded. The device has done what it was given before."""
        self._attempts += 1
        self.is_spent = self._attempts >= _MOST_ATTEMPTS
        self._wait()
        begun = clock()
        self._profiler.open(_make_config(self._torch), {self._torch.profiler.ProfilerActivity.CUDA})
        self._begun_s = clock()
        self.cost_s += self._begun_s - begun

    def close(self) -> list[Kernel]:
        """No more is recorded: the kernels that were launched since, in the order of their launches."""
        if not self.is_open:
            return []
        with no_collection:
            return self._close()

    def _close(self) -> list[Kernel]:
        self._wait()
        begun = self._ended_s = clock()
        # Both clocks at one moment: the recorder's is that of the calendar.
        offset_s = begun - 1e-9 * time.time_ns()
        kernels = list(_read(self._profiler.close(), offset_s))
        kernels.sort(key=lambda kernel: kernel.launched_s)
        self.is_spent = self.is_spent or bool(kernels)
        self.cost_s += clock() - begun + _RECORDING_S * len(kernels)
        return kernels

    def _wait(self) -> None:
        begun = clock()
        self._torch._C._cuda_synchronize()
        self._waited_s += clock() - begun

    def take_waited_s(self) -> float:
        """For how long the host waited for the device since this was last asked."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    @property
    def step_s(self) -> float:
        """How long it was open."""
        return self._ended_s - self._begun_s

    def leave_to_parent(self) -> None:
        """In a forked child: one that is open is not ours."""
        self._profiler.leave_to_parent()

    def abandon(self) -> None:
        """The window comes to nothing."""
        if self.is_open:
            self._profiler.close()


def _make_config(torch: Any) -> Any:
    profiler = torch._C._profiler
    # Neither shapes nor memory, stacks, operations or modules.
    return profiler.ProfilerConfig(
        profiler.ProfilerState.KINETO, False, False, False, False, False, profiler._ExperimentalConfig()
    )


def _read(result: Any, offset_s: float) -> Iterator[Kernel]:
    launches: dict[int, Any] = {}
    ran = []
    for event in result.events():
        if int(event.device_type()) == _CUDA:
            ran.append(event)
        else:
            launches[event.correlation_id()] = event
    for event in ran:
        launch = launches.get(event.correlation_id())
        if launch is None:
            continue  # a mark of the script's own, or launched before
        begun_ns = event.start_ns()
        launched_s = 1e-9 * launch.start_ns() + offset_s
        yield Kernel(event.name(), launched_s, begun_ns, begun_ns + event.duration_ns())


def busy_s(kernels: Sequence[Kernel]) -> float:
    """For how long at least one of them ran."""
    busy_ns = ended_ns = 0
    for begun_ns, until_ns in sorted((kernel.begun_ns, kernel.ended_ns) for kernel in kernels):
        if until_ns > ended_ns:
            busy_ns += until_ns - max(begun_ns, ended_ns)
            ended_ns = until_ns
    return 1e-9 * busy_ns


def find_launchers(kernels: Sequence[Kernel], track: Sequence[Moment]) -> list[tuple[str, Any]]:
    """For each kernel the phase it was launched in, and what the track says of it."""
    moments = [moment for moment, _, _ in track]
    found: list[tuple[str, Any]] = []
    for kernel in kernels:
        place = bisect_right(moments, kernel.launched_s) - 1
        found.append(track[place][1:] if place >= 0 else ("", None))
    return found


def describe_kernels(kernels: Sequence[Kernel], places: Sequence[object]) -> dict[str, object]:
    """By name and by the place that launched them: how many, and their milliseconds; the longest first."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for kernel, place in zip(kernels, places, strict=True):
        name = kernel.name[:_LONGEST_NAME]
        row = rows.setdefault((name, repr(place)), [name, place, 0, 0.0])
        row[2] += 1
        row[3] += 1e3 * kernel.seconds
    longest = sorted(rows.values(), key=lambda row: -row[3])
    names = list(dict.fromkeys(row[0] for row in longest[:_MOST_ROWS]))
    number = {name: index for index, name in enumerate(names)}
    return {
        "kernels": len(kernels),
        "busy_ms": round(1e3 * busy_s(kernels), 4),
        "names": names,
        "rows": [[number[name], place, count, round(ms, 4)] for name, place, count, ms in longest[:_MOST_ROWS]],
        "rest_ms": round(sum(row[3] for row in longest[_MOST_ROWS:]), 4),
    }
