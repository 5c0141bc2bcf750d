"""Workers are started anew for every epoch.

What it is: without `persistent_workers=True` a DataLoader ends its worker processes at the end of each epoch and starts
new ones for the next: processes, imports, opened files, caches, all again.

Why the GPU idles: between two epochs it waits until the new workers run and have made a first batch.

How it shows in a run: the first step of each epoch waits many times longer than the others, beyond what making one
batch takes.

The fix: `DataLoader(..., persistent_workers=True)`.

What to expect: an epoch begins as soon as one batch is made. The shorter the epochs, the more it gives.

When it is fine: long epochs, where a start of a second is nothing; a dataset that must be opened anew each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import Case, loader, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.input.epochs import gain_without, starting
from flatout.records.evidence import Evidence, Waiting

CODE = "IN105"
TITLE = "Workers are started anew for every epoch"
REMEDY = "loader.persistent"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for use in run.loaders:
        if use.settings.get("persistent_workers") or use.made > 1:
            continue  # a loader that is made anew cannot keep its workers
        start = starting(run, use)
        gain = gain_without(run, start) if start is not None else None
        if start is None or gain is None:
            continue
        yield FoundInRun(
            location=use.made_at,
            evidence={
                "epochs": use.epochs,
                "num_workers": use.workers,
                "start_ms_each": round(start.each_ms, 1),
                "start_ms_per_step": round(start.per_step_ms, 3),
            },
            cause=f"the {use.workers} workers are started {use.epochs} times, which holds the training up for "
            f"{start.each_ms:.3g} ms each time",
            change="persistent_workers=True",
            predicted_gain=gain,
        )


_SHORT = Waiting(0.05, 900.0, rest_ms=1.0, median_ms=1.0, empty_share=0.0, ready_ms=1.0)
_ANEW = loader(persistent_workers=False, epochs=20, iterator_s=0.3)
_STARVED = on_gpu(starved_share=0.3, drained_share=0.3, device_ms={"starved": 45.0, "step": 150.0})
_MS = {"data": 46.0, "forward": 35.0, "backward": 60.0, "optimizer": 9.0}
CASES = (
    Case(
        "finds it when epochs of twenty steps start their workers",
        run(gpu=_STARVED, loaders=(_ANEW,), ms=_MS, waiting=_SHORT),
        found=True,
    ),
    Case(
        "finds it in the loader of the evaluations",
        run(
            gpu=on_gpu(device_ms={"starved": 0.5, "step": 106.0}),
            loaders=(loader(), loader(number=2, trains=False, persistent_workers=False, epochs=30, iterator_s=0.4)),
            ms={"data": 1.0, "forward": 35.0, "backward": 60.0, "optimizer": 9.0, "eval": 45.0},
            waiting=Waiting(0.003, 80.0, rest_ms=1.0, median_ms=1.0),
        ),
        found=True,
    ),
    Case(
        "quiet when the workers stay",
        run(gpu=_STARVED, loaders=(loader(epochs=20),), ms=_MS, waiting=_SHORT),
        found=False,
    ),
    Case(
        "quiet when making the first batch is what takes so long",
        run(
            gpu=_STARVED,
            loaders=(_ANEW,),
            ms=_MS,
            waiting=Waiting(0.05, 60.0, rest_ms=45.0, median_ms=45.0, empty_share=1.0),
        ),
        found=False,
    ),
    Case(
        "quiet when the loader itself is made anew",
        run(gpu=_STARVED, loaders=(loader(persistent_workers=False, epochs=20, made=20),), ms=_MS, waiting=_SHORT),
        found=False,
    ),
    Case(
        "quiet without workers",
        run(loaders=(loader(num_workers=0, persistent_workers=False, epochs=20),), ms=_MS, waiting=_SHORT),
        found=False,
    ),
)
