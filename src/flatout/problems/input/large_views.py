"""Workers send views of much larger tensors, and the larger tensors with them.

What it is: a dataset returns a slice of a whole recording, document or table: `motion[start:end]`. A slice is a view:
its memory is that of the whole tensor, and torch's workers copy all of that into shared memory for every batch.

Why the GPU idles: copying takes the workers' time, and the processors' from the training. The training process gives
the memory back to the system when it lets go of the batch, between two steps.

How it shows in a run: workers that hand over for long though batches are small. The bytes that the tensors of a batch
show are compared with those of the storages behind them.

The fix: `motion[start:end].clone()` before it is returned or yielded. That copies only what is sent.

What to expect: the excess's part of the workers' time for handing over, and what the training process takes to free so
much memory, which is measured when a run begins.

When it is fine: the tensor is in shared memory already (`tensor.share_memory_()`), or the dataset returns slices of one
that it keeps: that one is copied once. Without workers, or where samples are collated by `torch.stack`, nothing is sent
as a view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flatout.model.edits import Edits, LessHost, LessTaking, MoreBatch
from flatout.model.measured import handover_ms, usual_handover_ms
from flatout.model.prediction import predict
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.input.loading import training_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message

CODE = "IN120"
# Of what is sent, what the tensors show at most; and the least that is sent beside it.
_SHOWN, _LEAST_MIB = 0.5, 1.0
_LEAST_GAIN = 1.02
# Of the wait for what is sent: something else may be waited for.
_LEFT_AT_WORST = 0.5


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    carried = None if use is None else use.carried
    # flatout's own workers send what is shown.
    if use is None or carried is None or not use.workers or use.batch_bytes is None or not run.step_ms:
        return
    excess_mib = carried.excess_bytes / 2**20
    if carried.shown_bytes >= _SHOWN * carried.carried_bytes or excess_mib < _LEAST_MIB:
        return
    excess = carried.excess_bytes / carried.carried_bytes
    sending_ms = excess * _handing_over_ms(run, use)
    # A batch counts as ready from when a worker begins to send it: until that is done it is waited for.
    waited_ms = min(sending_ms, excess * max(0.0, handover_ms(run) - usual_handover_ms(run)))
    freeing_ms = excess_mib * _batches(run, use) * _freeing_ms(run)
    # What nobody waits for keeps the worker from its next batch, and a processor from others.
    beside = MoreBatch(-(sending_ms - waited_ms) * _with_processor(run))
    host = LessHost(freeing_ms, is_sampled=False)
    likely = (LessTaking(waited_ms), beside, host)
    edits = Edits(likely, worst=(LessTaking(_LEFT_AT_WORST * waited_ms), host), best=likely)
    gain = predict(run, edits)
    if gain is None or gain.mid < _LEAST_GAIN or sending_ms + freeing_ms < WORTH * training_ms(run):
        return
    figures = {"shown_mib": carried.shown_bytes / 2**20, "carried_mib": carried.carried_bytes / 2**20}
    yield FoundInRun(
        location=carried.location or use.made_at,
        evidence={
            **{name: round(mib, 3) for name, mib in figures.items()},
            "handing_over_ms": round(sending_ms, 2),
            "waited_ms": round(waited_ms, 2),
            "freeing_ms": round(freeing_ms, 2),
            "num_workers": use.workers,
        },
        cause=message("in120.cause", sending_ms=sending_ms, freeing_ms=freeing_ms, step_ms=run.step_ms, **figures),
        change=message("in120.change"),
        edits=edits,
    )


def _batches(run: Evidence, use: LoaderUse) -> float:
    """Of a step: it may take several, or a part of one."""
    size, taken = use.batch_size or 1, run.samples_per_step
    return taken / size if taken is not None and size > 1 else 1.0


def _handing_over_ms(run: Evidence, use: LoaderUse) -> float:
    """All workers, in a step, while they have nothing else to do."""
    ledger = run.report.worker_ledger
    if ledger is None or ledger.loader != use.number:
        return 0.0
    return ledger.parts.get("handover", 0.0) * use.workers * run.step_ms


def _with_processor(run: Evidence) -> float:
    """The part of the workers' time at work in which they have one: sending needs it as making samples does."""
    ledger = run.report.worker_ledger
    return 1.0 - ledger.parts.get("not running", 0.0) / ledger.working if ledger is not None and ledger.working else 1.0


def _freeing_ms(run: Evidence) -> float:
    """The training process, a MiB. What a batch does not show it does not read."""
    known = run.report.environment.get("fresh_memory_ms_per_mib")
    return float(known.get("freeing", 0.0)) if isinstance(known, Mapping) else 0.0
