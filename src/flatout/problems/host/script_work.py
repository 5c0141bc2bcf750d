"""Work of the script in the step that is neither the model nor the optimizer.

What it is: between the batch and the optimizer's step the script does something that no module of the model does and
that nothing in backward belongs to: a metric in numpy, parsing, sorting, copying, drawing, bookkeeping in Python.

Why the GPU idles: the training thread launches nothing while it does something else. On a CPU the step is longer by all
of it.

How it shows in a run: lines that take time in the step, outside of every call of a module, in Python or in native code.
It is reported where no other problem names what is done there.

The fix: take it out of the step. Do it every hundred steps instead of every step, once before the loop if its result is
always the same, in the dataset if it depends on the sample alone, in a thread or process of its own if the training
does not need its result, or as one operation on the whole batch.

What to expect: at most all of its time. How much is left depends on what it is replaced by.

When it is fine: it is part of what is trained, such as a simulator, a search or a target that depends on the weights.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import KEEPS_FROM_HEALTH, WORTH_GENERAL, FoundInRun
from flatout.problems.hot_lines import place_name, waiting_lines
from flatout.records.evidence import Evidence
from flatout.records.ledger import SCRIPT, LedgerEntry
from flatout.records.message import message
from flatout.records.report import Location

CODE = "HO411"
GENERAL = True
# Fewer looks may have fallen there by chance.
_FEWEST_LOOKS = 5
_MOST_FINDINGS = 3


# Of a call's time, what passes may take (a look just after one still counts to it), and what the script's work must.
_PASSES, _OF_SCRIPT = 0.2, 0.5
# A line that has this part of a piece of work is where it is done; else it is done where it divides.
_MOST = 0.8
_OWN_PHASES, _TRAINING = ("forward", "other"), ("backward", "optimizer", "data")


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work in the step, and the line where it is done or where it divides."""

    location: Location
    function: str
    phase: str
    ms: float
    python_ms: float
    looks: float
    # Where it was seen.
    lines: frozenset[Location]


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if run.report.verdict.healthy or run.ledger.share_of(*SCRIPT, "waiting") < KEEPS_FROM_HEALTH:
        return
    for work in find_work(run)[:_MOST_FINDINGS]:
        if work.ms < WORTH_GENERAL * run.step_ms or work.looks < _FEWEST_LOOKS:
            continue
        nature = "python" if work.python_ms > 0.5 * work.ms else "native"
        yield FoundInRun(
            location=work.location,
            evidence={
                "work_ms_per_step": round(work.ms, 2),
                "work_share": round(work.ms / run.step_ms, 3),
                "nature": nature,
                "function": work.function,
                "looks": round(work.looks),
            },
            cause=message(
                f"ho411.cause_{nature}",
                function=work.function,
                line=place_name(work.location),
                work_ms=work.ms,
                step_ms=run.step_ms,
            ),
            change=message(f"ho411.change_{nature}"),
            edits=Edits((LessHost(work.ms, work.phase),), is_most=True),
        )


def find_work(run: Evidence) -> list[Work]:
    """The dearest first."""
    waits = waiting_lines(run)
    worked = {entry.location for entry in run.ledger.entries if entry.part in SCRIPT} - waits
    # A short wait in a line that works goes with it, and work in a line that waits with the wait.
    entries = [entry for entry in run.ledger.entries if entry.part in (*SCRIPT, "waiting") and entry.location in worked]
    found = _by_calls(run, entries) if run.call_paths else _by_functions(run, entries)
    return sorted(found, key=lambda work: -work.ms)


def _by_functions(run: Evidence, entries: Sequence[LedgerEntry]) -> list[Work]:
    """What each function does; of the function that holds the loop, each line by itself."""
    loops = {
        (entry.location.file, entry.function)
        for entry in run.ledger.entries
        if entry.phase in ("backward", "optimizer")
    }
    groups: dict[tuple[str, str, int], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        place = entry.location.file, entry.function
        groups[*place, entry.location.line if place in loops else 0].append(entry)
    found = []
    for group in groups.values():
        by_line: dict[int, float] = defaultdict(float)
        for entry in group:
            by_line[entry.location.line] += entry.ms
        worst = max(group, key=lambda entry: (by_line[entry.location.line], entry.ms))
        found.append(
            Work(
                worst.location,
                worst.function,
                worst.phase,
                ms=sum(entry.ms for entry in group),
                python_ms=sum(entry.ms for entry in group if entry.part == "python"),
                looks=sum(entry.looks for entry in group),
                lines=frozenset(entry.location for entry in group),
            )
        )
    return found


# By the calls that lead to it.

_Prefix = tuple[Location, ...]


@dataclass(slots=True)
class _Call:
    """A line as it is reached by certain calls, and all that it calls. `ms` is the script's own work."""

    function: str
    ms: float = 0.0
    python_ms: float = 0.0
    looks: float = 0.0
    # Whatever is done there in the script's own phases, and in the passes.
    own_ms: float = 0.0
    passes_ms: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)
    calls: set[_Prefix] = field(default_factory=set)
    # Where the work was seen.
    lines: set[Location] = field(default_factory=set)

    @property
    def is_work(self) -> bool:
        return (
            self.ms > 0
            and self.passes_ms <= _PASSES * (self.own_ms + self.passes_ms)
            and self.ms >= _OF_SCRIPT * self.own_ms
        )


def _by_calls(run: Evidence, entries: Sequence[LedgerEntry]) -> list[Work]:
    """The outermost calls of which nothing trains; what a function does beside them counts by its function."""
    calls = _make_tree(run, entries)
    found: dict[tuple[object, ...], list[_Prefix]] = defaultdict(list)
    for prefix in sorted(calls, key=len):
        if calls[prefix].is_work and not any(calls[prefix[:length]].is_work for length in range(1, len(prefix))):
            around = prefix[:-1]
            # Lines of the loop itself are different pieces of work.
            holds_loop = not around or calls[around].passes_ms > _PASSES * calls[around].own_ms
            found[(*around, prefix[-1] if holds_loop else calls[prefix].function)].append(prefix)
    return [_piece(calls, prefixes) for prefixes in found.values()]


def _piece(calls: Mapping[_Prefix, _Call], prefixes: Sequence[_Prefix]) -> Work:
    parts = [calls[prefix] for prefix in prefixes]
    ms, phases = sum(part.ms for part in parts), sum((part.phases for part in parts), Counter[str]())
    at = max(prefixes, key=lambda prefix: calls[prefix].ms)
    while calls[at].calls:
        inner = max(calls[at].calls, key=lambda prefix: calls[prefix].ms)
        by_itself_ms = calls[at].ms - sum(calls[prefix].ms for prefix in calls[at].calls)
        if calls[inner].ms < by_itself_ms:
            break
        divides = calls[inner].ms < _MOST * calls[at].ms
        at = inner
        if divides:
            break
    return Work(
        location=at[-1],
        function=calls[at].function,
        phase=phases.most_common(1)[0][0],
        ms=ms,
        python_ms=sum(part.python_ms for part in parts),
        looks=sum(part.looks for part in parts),
        lines=frozenset().union(*(part.lines for part in parts)),
    )


def _make_tree(run: Evidence, entries: Sequence[LedgerEntry]) -> dict[_Prefix, _Call]:
    """By the lines on the stack. What was seen at a line is shared out among the ways to it by the looks at each."""
    by_line: dict[Location, list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        by_line[entry.location].append(entry)
    own_ms: Counter[Location] = Counter()
    for entry in run.ledger.entries:
        if entry.phase in _OWN_PHASES:
            own_ms[entry.location] += entry.ms  # type: ignore[assignment]
    looks: Counter[Location] = Counter()
    for path in run.call_paths:
        if path.lines and path.phase in _OWN_PHASES:
            looks[path.lines[-1]] += path.looks  # type: ignore[assignment]
    calls: dict[_Prefix, _Call] = {}
    for path in run.call_paths:
        if not path.lines:
            continue
        line = path.lines[-1]
        is_own = path.phase in _OWN_PHASES
        part = path.looks / looks[line] if is_own and looks[line] else 0.0
        theirs = by_line.get(line, ())
        for length in range(1, len(path.lines) + 1):
            prefix = path.lines[:length]
            call = calls.setdefault(prefix, _Call(path.functions[length - 1]))
            if length < len(path.lines):
                call.calls.add(path.lines[: length + 1])
            call.own_ms += part * own_ms[line]
            call.passes_ms += path.ms if path.phase in _TRAINING else 0.0
            if theirs and is_own:
                call.lines.add(line)
            for entry in theirs if is_own else ():
                call.ms += part * entry.ms
                call.python_ms += part * entry.ms if entry.part == "python" else 0.0
                call.looks += part * entry.looks
                call.phases[entry.phase] += part * entry.ms  # type: ignore[assignment]
    return calls
