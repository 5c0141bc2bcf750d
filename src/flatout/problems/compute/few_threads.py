"""Torch computes with fewer threads than there are processors.

What it is: a training on a CPU whose operations run on one thread, or on some, because of `torch.set_num_threads(n)`,
`OMP_NUM_THREADS` or a launcher that sets it to 1, while other processors have nothing to do.

Why the GPU idles: there is none; the processors beside the first idle while the model computes on it.

How it shows in a run: torch has fewer threads than the run may use processors, those are idle, and products of the
sizes that the run's heaviest operations have take less time with more threads, as timed here when the run has ended.

The fix: `torch.set_num_threads(n)` with the number of processors, or no such call; `OMP_NUM_THREADS=n` under torchrun,
which sets it to 1; several ranks share the processors.

What to expect: the heavy operations take as much less as was timed; small ones and Python stay as they are. Losses stay
the same but for rounding.

When it is fine: the operations are too small to be divided, or workers, other ranks or other jobs need the processors.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.problems.compute.device import model_ms
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.records.evidence import Evidence, ThreadTimes
from flatout.records.message import message

CODE = "CO524"
# Less than this is what two timings differ by.
_QUICKER = 1.15
# Of what the timed products gain: the other operations of the passes gain less, or as much.
_WORST = 0.5
_PASSES = ("forward", "backward", "optimizer")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    times = run.thread_times
    if times is None or run.on_gpu or times.many_ms <= 0:
        return
    more = min(float(times.processors - times.threads), _idle(run, times))
    if more < 1 or times.few_ms < _QUICKER * times.many_ms:
        return
    part = (1.0 - times.many_ms / times.few_ms) * more / (times.processors - times.threads)
    passes = {phase: model_ms(run, phase) for phase in _PASSES}
    passes_ms = sum(passes.values())
    if part * passes_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    most = max(part, more / (times.threads + more))
    yield FoundInRun(
        location=times.location,
        evidence={
            "threads": times.threads,
            "processors": times.processors,
            "passes_ms_per_step": round(passes_ms, 2),
            "timed_ms": round(times.few_ms, 3),
            "timed_ms_with_all": round(times.many_ms, 3),
        },
        cause=message(
            "co524.cause",
            threads=times.threads,
            processors=times.processors,
            passes_ms=passes_ms,
            step_ms=run.step_ms,
            times=times.few_ms / times.many_ms,
        ),
        change=message("co524.change", processors=times.processors),
        edits=Edits.between(
            tuple(LessHost(saved * ms, phase, is_sampled=False, of_model=True) for phase, ms in passes.items())
            for saved in (_WORST * part, part, most)
        ),
    )


def _idle(run: Evidence, times: ThreadTimes) -> float:
    """Processors that the run may use and that neither it nor others had, rounded: a count is never exact."""
    host, machine = run.report.host, run.report.machine
    if host is None or host.cpu_cores is None:
        return run.cpus - times.threads
    others = (machine.other_cores or 0.0) if machine is not None else 0.0
    return float(round(run.cpus - host.cpu_cores - others))
