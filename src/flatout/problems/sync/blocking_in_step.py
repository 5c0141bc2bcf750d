"""A call in the training step blocks the training thread.

What it is: a call in the training loop that blocks until a viewer, a socket, a process, a person or a clock lets it
return: `recv`, `accept`, `sleep`, `input`, a web request, `psutil.cpu_percent(interval=...)`.

Why the GPU idles: while the training thread is blocked, nothing is launched.

How it shows in a run: the training thread is asleep at such a line, outside of the wait for a batch: in a read, on a
socket or a pipe, for a lock, a child process or a timer.

How it shows in source: such a call in code that every step runs, and `torch.distributed.barrier()` there too.

The fix: take it off the training thread. A viewer: poll with `select(..., 0)` or a non-blocking socket and answer
every 100 steps, or switch it off. Requests and subprocesses: a thread of their own. Sleeps: delete them.

What to expect: the whole wait goes, unless the GPU computes meanwhile. Where a thread or a process of the script is
waited for, a step still takes as long as its work.

When it is fine: while you look at the viewer, or once in many steps.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flatout.model.edits import AtLeast, Edit, Edits, LessHost
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.hot_lines import host_lines, text_at, waiting_lines
from flatout.records.evidence import Evidence
from flatout.records.ledger import SCRIPT, Nature
from flatout.records.message import Message, message
from flatout.records.report import Location
from flatout.source.code import Code
from flatout.source.syntax.module import Function, full_name
from flatout.source.syntax.nodes import argument, called_name, dotted_name, last_name, short_text
from flatout.source.training.cadence import iterates_batches, runs_each_step

CODE = "SY305"
REMEDY = "cadence.throttle"
_BLOCKS = re.compile(
    r"\.(recv|recv_into|recvfrom|recv_json|recv_pyobj|recv_string|recv_multipart|accept|readline|urlopen|communicate)\("
    r"|\bsleep\(|\binput\(|\bselect\.select\(|\.select\(timeout|\brequests\.\w+\(|\burlopen\(|\bos\.system\("
    r"|\bsubprocess\.(run|call|check_output|check_call|getoutput)\(|\bcpu_percent\([^)]*interval|\bwaitpid\("
)
_POLLS = re.compile(r"select\.select\([^)]*,\s*0(\.0)?\s*\)|cpu_percent\(\s*(interval\s*=\s*)?(None|0)\s*\)|sleep\(0\)")
_WORTH = 0.02
# What another thread or process ends: no timer does, and no disk.
_FOR_OTHERS: frozenset[Nature] = frozenset(("lock", "pipe", "process"))


@dataclass(frozen=True, slots=True)
class _Wait:
    """A line at which the training thread waits, and for what; None where only its text tells that it does."""

    location: Location
    function: str
    ms: float
    nature: Nature | None = None


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Where nothing tells what the thread did at a line, as in an older recording, its text does.
    tells = any(entry.nature != "unknown" for entry in run.ledger.entries)
    waits = _seen_waiting(run) if tells else _written_waits(run)
    wait_ms = sum(wait.ms for wait in waits)
    if not waits or wait_ms < _WORTH * run.step_ms:
        return
    worst, places = max(waits, key=lambda wait: wait.ms), {wait.location for wait in waits}
    # What else these lines take of the step goes with the wait.
    around_ms = sum(entry.ms for entry in run.ledger.entries if entry.part in SCRIPT and entry.location in places)
    evidence: dict[str, float | int | str] = {
        "wait_ms_per_step": round(wait_ms, 2),
        "call": text_at(run, worst.location)[:80],
        "function": worst.function,
    }
    figures: dict[str, Any] = {"function": worst.function, "wait_ms": wait_ms, "step_ms": run.step_ms}
    if worst.nature is not None:
        evidence["waits_for"] = worst.nature
        figures["what"] = message(f"ledger.waits_{worst.nature}")
    yield FoundInRun(
        location=worst.location,
        evidence=evidence,
        cause=message("sy305.cause" if worst.nature is None else "sy305.cause_seen", **figures),
        change=message("sy305.change"),
        edits=Edits((*_without_wait(run, worst, wait_ms), LessHost(around_ms, "forward"))),
    )


def _without_wait(run: Evidence, wait: _Wait, ms: float) -> tuple[Edit, ...]:
    """Whoever is waited for may belong to the script: a thread or a process that still has its work to do."""
    less = LessHost(ms, "forward", is_idle=True)
    works_ms = run.beside_share * run.step_ms if wait.nature in _FOR_OTHERS else 0.0
    return (less, AtLeast(works_ms)) if works_ms else (less,)


def _seen_waiting(run: Evidence) -> list[_Wait]:
    """Lines at which the thread was mostly seen asleep, whatever is written there."""
    by_place: dict[tuple[Location, str, Nature], float] = defaultdict(float)
    places = waiting_lines(run)
    for entry in run.ledger.entries:
        if entry.part == "waiting" and entry.location in places:
            by_place[entry.location, entry.function, entry.nature] += entry.ms
    return [_Wait(location, function, ms, nature) for (location, function, nature), ms in by_place.items()]


def _written_waits(run: Evidence) -> list[_Wait]:
    """Of a recording that does not tell what the thread did: lines that call what blocks."""
    texts = [(line, text_at(run, line.location)) for line in host_lines(run)]
    return [
        _Wait(line.location, line.function, line.ms)
        for line, text in texts
        if not text.startswith("#") and _BLOCKS.search(text) and not _POLLS.search(text)
    ]


# Calls that block the training thread: on a clock, a process, a server, a person.

_RUNS = {"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
_ASKS = {"get", "post", "put", "patch", "delete", "head", "request"}
_WEB = {"requests", "httpx", "urllib", "urllib3"}
_RECEIVES = {"recv", "recv_into", "recvfrom", "recv_json", "recv_pyobj", "recv_string", "recv_multipart", "accept"}
_PEER = re.compile(r"sock|conn|client|server|listener|viewer|gui", re.I)
_NON_BLOCKING = re.compile(r"setblocking\(\s*(False|0)|settimeout\(\s*0|NOBLOCK|DONTWAIT")
_NAMES = (
    "sleep", "input", "system", "urlopen", "urlretrieve", "cpu_percent", "barrier", "wait_for_everyone",
    *_RUNS, *_ASKS, *_RECEIVES,
)  # fmt: skip


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, point, call in code.calls_each_step(*_NAMES):
        if any(isinstance(loop, ast.While) for loop in point.loops) and called_name(call) == "sleep":
            continue  # `while paused: sleep(…)` waits only if there is something to wait for
        waits_for = _waits_for(call, region.function)
        if waits_for is not None and iterates_batches(region.root):
            # Whatever the settings are, it happens at each step.
            is_certain = runs_each_step(region, call) and called_name(call) != "barrier"
            cause = message("sy305.source_cause", code=short_text(call, 40), waits_for=waits_for, step=step_of(region))
            severity = "high" if is_certain else "medium"
            yield found_in_step(region, call, cause, message("sy305.source_change"), severity=severity)


def _waits_for(call: ast.Call, function: Function) -> Message | None:
    name, whole = called_name(call), full_name(call.func, function.module)
    root = whole.split(".")[0]
    first = argument(call, "interval" if name == "cpu_percent" else "secs", 0)
    if whole == "time.sleep":
        return None if first is None or _is_nothing(first) else message("sy305.clock")
    if whole == "psutil.cpu_percent":
        return None if first is None or _is_nothing(first) else message("sy305.psutil")
    if name == "input" and isinstance(call.func, ast.Name):
        own = "input" in function.parameters
        return None if own or "input" in function.bindings or whole != "input" else message("sy305.keyboard")
    if whole == "os.system" or (root == "subprocess" and name in _RUNS):
        return message("sy305.process")
    if root in _WEB and (name in _ASKS or name in ("urlopen", "urlretrieve")):
        return message("sy305.server")
    if whole in ("torch.distributed.barrier", "dist.barrier") or name == "wait_for_everyone":
        return message("sy305.ranks")
    if name in _RECEIVES and isinstance(call.func, ast.Attribute):
        return _of_socket(name, call.func, function)
    return None


def _of_socket(name: str, func: ast.Attribute, function: Function) -> Message | None:
    text = function.module.text
    if "socket" not in text and "zmq" not in text:
        return None
    made = [value for value in function.bindings.get(dotted_name(func.value), ()) if isinstance(value, ast.Call)]
    is_socket = any(full_name(value.func, function.module).startswith("socket.") for value in made)
    is_peer = _PEER.search(last_name(func.value)) or is_socket
    if not is_peer or (name == "accept" and _NON_BLOCKING.search(text)):
        return None
    return message("sy305.peer")


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
