"""Workers write every batch into newly allocated shared memory.

What it is: torch's workers write every batch into new shared memory. The training process maps it, touches every page
for the first time, and frees it all when the batch is released: some hundred microseconds for each MiB, however simple
the samples are.

Why the GPU idles: the training thread does that between two steps. Where batches are pinned another thread does it, but
memory is freed with the GIL held, and the training thread cannot launch anything meanwhile.

How it shows in a run: batches of many MiB from workers that keep up; the time shows up in any phase, as pauses of a few
milliseconds.

The fix: `flatout.DataLoader`, or `loader.workers` from outside: workers that reuse their memory. Smaller elements help
as well: images as bytes, converted to floats on the device.

What to expect: what mapping and freeing so much memory takes on this machine, which is measured when a run begins.

When it is fine: the device is busy for all of the step and the host is ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flatout.model.edits import Edits, LessHost
from flatout.model.measured import device_work_ms
from flatout.model.prediction import predict
from flatout.problems.found import FoundInRun
from flatout.problems.input.loading import training_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message

CODE = "IN117"
REMEDY = "loader.workers"
# Of a step without its pauses; batches that are smaller than this cost little else either.
_WORTH, _FEWEST_MIB = 0.1, 4.0
_LEAST_GAIN = 1.02


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not use.workers or not use.batch_bytes or not run.step_ms:
        return
    # A step may take several batches, or a part of one.
    size, taken = use.batch_size or 1, run.samples_per_step
    mib = (taken / size if taken is not None and size > 1 else 1.0) * use.batch_bytes / 2**20
    each_ms, work_ms = _each_ms(run, use), device_work_ms(run)
    if each_ms is None or work_ms is None or mib < _FEWEST_MIB:
        return
    taken_ms = mib * each_ms
    edits = Edits((LessHost(taken_ms, is_sampled=False),))
    gain = predict(run, edits)
    if gain is None or gain.mid < _LEAST_GAIN or taken_ms < _WORTH * training_ms(run):
        return
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "mib_per_step": round(mib, 2),
            "ms_per_mib": round(each_ms, 3),
            "num_workers": use.workers,
            "pin_memory": str(bool(use.settings.get("pin_memory"))),
        },
        cause=message("in117.cause", mib=mib, taken_ms=taken_ms, step_ms=run.step_ms),
        change=message("in117.change"),
        edits=edits,
    )


def _each_ms(run: Evidence, use: LoaderUse) -> float | None:
    """What a MiB holds the thread that trains up for: of pinned batches another thread does the reading."""
    known = run.report.environment.get("fresh_memory_ms_per_mib")
    if not isinstance(known, Mapping):
        return None
    reading = 0.0 if use.settings.get("pin_memory") and run.on_gpu else float(known.get("reading", 0.0))
    return reading + float(known.get("freeing", 0.0))
