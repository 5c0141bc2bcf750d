"""Another thread of the script runs Python while the training needs the interpreter.

What it is: a thread beside the training one runs Python for a good part of the time: it polls a queue, decodes
pictures, computes metrics or writes logs. Only one thread of a process runs Python at a time.

Why the GPU idles: each time the training thread comes back from an operation it waits until the other thread hands the
interpreter over, five milliseconds by default. A step with hundreds of operations waits hundreds of times, and launches
nothing meanwhile.

How it shows in a run: the training thread wants the interpreter but sleeps, while another Python thread of the process
is on a processor.

The fix: let the thread wait instead of polling (`queue.get()` without `_nowait`, `Event.wait()`), do its work in a
process of its own, or in native code that releases the interpreter, or less often.

What to expect: at most the time that the training thread waited.

When it is fine: the thread does its work while the training waits for something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import WORTH_GENERAL, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "HO414"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.interpreter
    if use is None or use.wait_share < WORTH_GENERAL:
        return
    wait_ms = use.wait_share * run.step_ms
    yield FoundInRun(
        location=use.location,
        evidence={
            "wait_ms_per_step": round(wait_ms, 2),
            "thread": use.name,
            "function": use.function,
            "thread_cores": round(use.run_share, 2),
        },
        cause=message(
            "ho414.cause",
            thread=use.name,
            function=use.function,
            line=place_name(use.location),
            cores=use.run_share,
            wait_ms=wait_ms,
            step_ms=run.step_ms,
        ),
        change=message("ho414.change"),
        edits=Edits((LessHost(wait_ms, is_sampled=False, of_model=True),)),
    )
