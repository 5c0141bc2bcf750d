"""What an evaluation consists of, and how long it would take if it were fed as well as the training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flatout.problems.cadence.pausing import pause_ms, steady_steps
from flatout.records.evidence import Evidence, LoaderUse

# Workers slow each other down a little.
_CONTENTION = 1.3
# A loader at this share of what its workers can give is what the evaluation waits for.
_KEEPS_BUSY = 0.8


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation as it was, in milliseconds: all of it, loading by one process, the rest; and what it reads."""

    loader: LoaderUse
    each_ms: float
    loading_ms: float
    computing_ms: float
    samples: float
    # What the training's forward pass takes for as many samples.
    forward_ms: float


@dataclass(frozen=True, slots=True)
class Fed:
    """The same evaluation with more workers, or larger batches: in milliseconds, at worst and as the figures say."""

    workers: int
    batch_size: int
    each_ms: float
    cautious_ms: float


def evaluation_loader(run: Evidence) -> LoaderUse | None:
    """The loader that most evaluated samples come from."""
    torch = run.report.live.get("torch")
    trains = set(torch.get("training_loaders", ())) if isinstance(torch, dict) else set()
    others = [use for use in run.loaders if not use.trains and use.number not in trains and use.epochs]
    return max(others, key=lambda use: _samples(use) * use.epochs, default=None)


def evaluation(run: Evidence) -> Evaluation | None:
    """None without a loader of its own, or if too little of it is known."""
    use, ms = evaluation_loader(run), pause_ms(run, "eval")
    if use is None or run.evaluations is None or not ms or use.sample_ms is None or not run.samples_per_step:
        return None
    samples = _samples(use)
    each_ms = ms * steady_steps(run) / run.evaluations.count
    # Several iterators for one evaluation, or a fraction of one, would be another loader's.
    if not samples or not 0.5 <= use.epochs / run.evaluations.count <= 3:
        return None
    device_ms = run.report.gpu.device_ms.get("forward", 0.0) if run.report.gpu else 0.0
    forward_ms = max(run.phase("forward").ms, device_ms) * samples / run.samples_per_step
    loading_ms = use.sample_ms * samples
    if not use.workers:
        loading_ms = min(loading_ms, each_ms)
        computing_ms = each_ms - loading_ms
    elif loading_ms / use.workers >= _KEEPS_BUSY * each_ms:
        computing_ms = min(forward_ms, each_ms)
    else:
        computing_ms = each_ms
    return Evaluation(use, each_ms, loading_ms, computing_ms, samples, forward_ms)


def _samples(use: LoaderUse) -> float:
    length = use.settings.get("dataset_len")
    if length:
        return float(length)
    return use.cost.samples / max(1, use.epochs) if use.cost is not None else 0.0


def fed(run: Evidence, one: Evaluation) -> Fed | None:
    """The evaluation with the batch size of the training, and with workers as far as there are processors."""
    train, spare = run.training_loader, math.floor(run.cpus) - max(1, run.report.run.ranks)
    batch_size, computing_ms = one.loader.batch_size or 1, one.computing_ms
    larger = train.batch_size if train is not None and train.batch_size else 1
    if 4 * batch_size <= larger and computing_ms > 2 * one.forward_ms:
        batch_size, computing_ms = larger, one.forward_ms
    waits = (
        one.loading_ms / max(1, one.loader.workers) >= (0.3 if not one.loader.workers else _KEEPS_BUSY) * one.each_ms
    )
    workers = one.loader.workers
    if waits and spare > workers:
        wanted = math.ceil(_CONTENTION * one.loading_ms / max(computing_ms, 1e-6))
        workers = max(workers, min(wanted, spare, math.ceil(one.samples / batch_size)))
    if workers == one.loader.workers and batch_size == one.loader.batch_size:
        return None
    if not workers:
        each_ms = computing_ms + one.loading_ms
        return Fed(workers, batch_size, each_ms, one.each_ms - 0.5 * (one.each_ms - each_ms))
    each_ms = max(computing_ms, one.loading_ms / workers, _processors_ms(run, computing_ms, one.loading_ms))
    cautious_ms = max(computing_ms, _CONTENTION * each_ms)
    return Fed(workers, batch_size, min(each_ms, one.each_ms), min(cautious_ms, one.each_ms))


def _processors_ms(run: Evidence, computing_ms: float, loading_ms: float) -> float:
    """All processors together doing the work. On a CPU the computing takes as many as torch has threads."""
    torch = run.report.live.get("torch")
    threads = float(torch.get("num_threads") or 1) if isinstance(torch, dict) and not run.on_gpu else 1.0
    return (computing_ms * min(threads, run.cpus) + loading_ms) / max(run.cpus, 1.0)


def is_slow_itself(run: Evidence, one: Evaluation) -> bool:
    """A sample takes longer to evaluate than to train on, backward and all: then it is not for its being frequent."""
    pauses_ms = sum(run.phase(name).ms for name in ("eval", "checkpoint", "logging"))
    trained_ms = (run.step_ms - pauses_ms) / (run.samples_per_step or 1.0)
    return one.each_ms / one.samples > trained_ms
