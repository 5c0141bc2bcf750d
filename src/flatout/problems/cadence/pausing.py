"""What a pause of the training costs, and what it costs when it comes less often. Shared by the problems of cadence."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from flatout.problems.hot_lines import host_lines
from flatout.problems.prediction import by_step, device_work_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Gain, PauseSite
from flatout.source.syntax.nodes import DEFINITIONS, called_name, children

Pause = Literal["evaluation", "checkpoints", "logging", "progress"]
# A pause that takes this share of the run is not worth a thought.
SMALL = 0.02
_INTERVALS = (2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000)
# Of what a longer interval should save, this much is promised.
_CAUTIOUS = 0.75


def pause_ms(run: Evidence, phase: str) -> float:
    """Milliseconds a step of the rank that pauses most: the others wait for it."""
    by_rank = [rank.phase_ms.get(phase, 0.0) for rank in run.report.ranks]
    return max([run.phase(phase).ms, *by_rank])


def prepared_ms(run: Evidence, sites: Sequence[PauseSite]) -> float:
    """What a function that pauses, with those that only serve it, takes beside the pause itself: it makes the picture.

    Not one that trains as well: what it does besides is its proper work.
    """
    lines = run.all_lines or run.report.lines
    trains = {(line.location.file, line.function) for line in lines if line.phase in ("backward", "optimizer", "data")}
    pauses = {(site.location.file, site.function) for site in sites} - trains
    pauses |= {(file, name) for file, of in pauses for name in exclusive_helpers(run.files.get(file, ""), of)} - trains
    return sum(line.ms for line in host_lines(run) if (line.location.file, line.function) in pauses)


def exposed_ms(run: Evidence, ms: float, each_ms: float) -> float:
    """What of `ms` a step delays the training, if one pause lasts `each_ms`.

    A GPU with work in its queue does not notice a short pause of the host: then its own work sets the pace. A pause
    longer than two steps outlasts any queue.
    """
    if not run.on_gpu or each_ms > 2 * run.step_ms:
        return ms
    work_ms = device_work_ms(run)
    return 0.0 if work_ms is None else min(ms, max(0.0, run.step_ms - work_ms))


def times_longer(run: Evidence, ms: float, most: int = _INTERVALS[-1]) -> int:
    """The interval, as a multiple of what it is, at which the pause is small; `most` at most."""
    rest_ms = max(run.step_ms - ms, 1e-9)
    for times in _INTERVALS:
        if times >= most or ms / times <= SMALL * (rest_ms + ms / times):
            return min(times, most)
    return most


def rarer(run: Evidence, ms: float, times: int, pause: Pause) -> Gain | None:
    """A pause of `ms` a step that comes so many times less often."""
    saved_ms, step_ms = ms * (1 - 1 / times), run.step_ms
    method = message("cadence.gain", step_ms=step_ms, ms=ms, pause=message(f"cadence.{pause}"), times=times)
    return by_step(run, step_ms - _CAUTIOUS * saved_ms, step_ms - saved_ms, step_ms - ms, method)


def steady_steps(run: Evidence) -> int:
    return max(1, run.report.run.steps - run.report.warmup_steps)


# Functions of a file that only serve another one of it.


@lru_cache(maxsize=64)
def exclusive_helpers(text: str, function: str) -> frozenset[str]:
    """Functions that this one calls, itself or through others, and nobody else in the file does."""
    try:
        callers = _callers(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    serving = {function}
    while True:
        more = {name for name, by in callers.items() if by <= serving} - serving
        if not more:
            return frozenset(serving - {function})
        serving |= more


def _callers(tree: ast.Module) -> dict[str, set[str]]:
    """Of every function of the file that is called in it: from which functions; "" is the file's own body."""
    defined: set[str] = set()
    calls: dict[str, set[str]] = defaultdict(set)
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, inside = stack.pop()
        for child in children(node):
            if isinstance(child, ast.Call):
                calls[called_name(child)].add(inside)
            if isinstance(child, DEFINITIONS) and not isinstance(child, ast.ClassDef | ast.Lambda):
                defined.add(child.name)
                stack.append((child, child.name))
            else:
                stack.append((child, inside))
    return {name: by for name, by in calls.items() if name in defined}
