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

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import KEEPS_FROM_HEALTH, WORTH_GENERAL, FoundInRun
from flatout.problems.hot_lines import place_name, waiting_lines
from flatout.records.evidence import Evidence
from flatout.records.ledger import SCRIPT, LedgerEntry
from flatout.records.message import message

CODE = "HO411"
GENERAL = True
# Fewer looks may have fallen there by chance.
_FEWEST_LOOKS = 5
_MOST_FINDINGS = 3


@dataclass(frozen=True, slots=True)
class _Work:
    """What one function does in the step; of the function that holds the loop, one line."""

    entries: tuple[LedgerEntry, ...]

    @property
    def ms(self) -> float:
        return sum(entry.ms for entry in self.entries)

    @property
    def worst(self) -> LedgerEntry:
        by_line: dict[int, float] = defaultdict(float)
        for entry in self.entries:
            by_line[entry.location.line] += entry.ms
        return max(self.entries, key=lambda entry: (by_line[entry.location.line], entry.ms))


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if run.report.verdict.healthy or run.ledger.share_of(*SCRIPT, "waiting") < KEEPS_FROM_HEALTH:
        return
    for work in _find_work(run)[:_MOST_FINDINGS]:
        looks = sum(entry.looks for entry in work.entries)
        if work.ms < WORTH_GENERAL * run.step_ms or looks < _FEWEST_LOOKS:
            continue
        worst = work.worst
        python_ms = sum(entry.ms for entry in work.entries if entry.part == "python")
        nature = "python" if python_ms > 0.5 * work.ms else "native"
        yield FoundInRun(
            location=worst.location,
            evidence={
                "work_ms_per_step": round(work.ms, 2),
                "work_share": round(work.ms / run.step_ms, 3),
                "nature": nature,
                "function": worst.function,
                "looks": round(looks),
            },
            cause=message(
                f"ho411.cause_{nature}",
                function=worst.function,
                line=place_name(worst.location),
                work_ms=work.ms,
                step_ms=run.step_ms,
            ),
            change=message(f"ho411.change_{nature}"),
            edits=Edits((LessHost(work.ms, worst.phase),), is_most=True),
        )


def _find_work(run: Evidence) -> list[_Work]:
    """The dearest first."""
    waits = waiting_lines(run)
    worked = {entry.location for entry in run.ledger.entries if entry.part in SCRIPT} - waits
    # A short wait in a line that works goes with it, and work in a line that waits with the wait.
    entries = [entry for entry in run.ledger.entries if entry.part in (*SCRIPT, "waiting") and entry.location in worked]
    loops = {
        (entry.location.file, entry.function)
        for entry in run.ledger.entries
        if entry.phase in ("backward", "optimizer")
    }
    groups: dict[tuple[str, str, int], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        place = entry.location.file, entry.function
        groups[*place, entry.location.line if place in loops else 0].append(entry)
    return sorted((_Work(tuple(group)) for group in groups.values()), key=lambda work: -work.ms)
