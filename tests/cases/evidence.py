"""Runs made up for the cases of a problem: a healthy one, and what is changed about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatout.records.evidence import Evidence, LoaderUse, Series, Waiting
from flatout.records.message import verbatim
from flatout.records.report import (
    PHASES,
    GpuUse,
    HostUse,
    Location,
    Overhead,
    PhaseShare,
    RankUse,
    RunFacts,
    RunReport,
    Throughput,
    Verdict,
    WorkerCost,
)

HERE = Location("train.py", 10)
# Of a run that computes for less than it should.
UNHEALTHY = Verdict("balanced", False, verbatim("Bound."))


@dataclass(frozen=True, slots=True)
class Case:
    """A run and whether the problem is in it. `name` reads as "finds it when …" or "quiet when …"."""

    name: str
    run: Evidence
    found: bool


def live_state(optimizers: Sequence[dict[str, Any]] = (), /, **torch: object) -> dict[str, object]:
    """What the live process told of torch and of its optimizers."""
    return {"torch": torch, "loaders": [], "optimizers": list(optimizers)}


def phases(**ms: float) -> dict[str, PhaseShare]:
    """Phases by their milliseconds a step."""
    step_ms = sum(ms.values()) or 1.0
    return {name: PhaseShare(ms.get(name, 0.0) / step_ms, ms.get(name, 0.0)) for name in PHASES}


def loader(**changes: Any) -> LoaderUse:
    """A training loader with four workers that keep up; `changes` are of LoaderUse, or settings of DataLoader."""
    own = set(LoaderUse.__dataclass_fields__)
    settings = {
        "num_workers": 4,
        "batch_size": 32,
        "pin_memory": True,
        "prefetch_factor": 2,
        "persistent_workers": True,
        "drop_last": False,
        "sampler": "RandomSampler",
        "dataset": "project.Images",
        "dataset_len": 10_000,
        "collate_fn": "default_collate",
        "multiprocessing_context": None,
        "paths": [],
        **{name: value for name, value in changes.items() if name not in own},
    }
    use = LoaderUse(1, settings, HERE, trains=True, cost=worker_cost(), epochs=3, iterator_s=0.05)
    return replace(use, **{name: value for name, value in changes.items() if name in own})


def worker_cost(**changes: Any) -> WorkerCost:
    cost = WorkerCost(
        loader=1,
        workers=4,
        samples=9_600,
        fetch_ms_per_sample=2.0,
        collate_ms_per_sample=0.1,
        slowest_batch_ms=90.0,
        busy_share=0.4,
        startup_s=0.1,
        queue_depth=6.0,
    )
    return replace(cost, **changes)


def on_gpu(**changes: Any) -> GpuUse:
    """A GPU that is kept busy."""
    gpu = GpuUse(
        starved_share=0.01,
        util_mean=97.0,
        util_spread=2.0,
        power_share=0.8,
        sm_active=0.8,
        tensor_active=0.3,
        memory_peak=20 << 30,
        drained_share=0.05,
        device_ms={"starved": 0.5, "forward": 30.0, "backward": 60.0, "optimizer": 8.0, "other": 1.0, "step": 99.5},
    )
    return replace(gpu, **changes)


def run(
    gpu: GpuUse | None = None,
    loaders: tuple[LoaderUse, ...] | None = None,
    ms: Mapping[str, float] | None = None,
    cpus: float = 16.0,
    samples: float | None = 32.0,
    **changes: Any,
) -> Evidence:
    """A healthy run of 100 ms steps with 32 samples; on a GPU if one is given.

    `changes` are of RunReport, or of Evidence.
    """
    division = dict(ms or {"data": 1.0, "h2d": 1.0, "forward": 31.0, "backward": 58.0, "optimizer": 8.0, "other": 1.0})
    step_ms = sum(division.values())
    report = RunReport(
        run=RunFacts("run", ("train.py",), 0, 300, 0.3 * step_ms, 1, "cpu" if gpu is None else "GPU", "2.13.0", "3.12"),
        throughput=Throughput(1e3 / step_ms, None if samples is None else samples * 1e3 / step_ms),
        phases=phases(**division),
        gpu=gpu,
        verdict=Verdict("compute", True, verbatim("Healthy.")),
        findings=(),
        overhead=Overhead(10.0, 0.0001),
        live=live_state(cudnn_benchmark=True, matmul_precision="high"),
        host=HostUse(cpu_cores=3.0, memory_peak=8 << 30),
    )
    of_evidence = set(Evidence.__dataclass_fields__)
    more = {name: changes.pop(name) for name in sorted(of_evidence) if name in changes}
    report = replace(report, **changes)
    return Evidence(report, (loader(),) if loaders is None else loaders, cpus, samples, **more)


# Memory of a machine, and of a container on it.
MACHINE = {"memory_bytes": 64 << 30}
CONTAINER = {**MACHINE, "memory_limit_bytes": 16 << 30}


def growing_series(start: float, per_s: float, ends_at_s: float = 60.0) -> Series:
    """Bytes over a minute that grow by so much a second, until they level off."""
    t_s = tuple(0.2 * i for i in range(300))
    return Series(t_s, tuple(start + per_s * min(t, ends_at_s) for t in t_s))


# A GPU that waits for data in half of each 100 ms step: the step's phases, and a queue of batches that is always empty.
STARVED = on_gpu(starved_share=0.5, drained_share=0.8, device_ms={"starved": 50.0, "step": 100.0})
STARVED_MS = {"data": 51.0, "forward": 15.0, "backward": 30.0, "optimizer": 4.0}
EMPTY_QUEUE = Waiting(0.0, None, rest_ms=50.0, median_ms=50.0, empty_share=1.0)


def starved_run(*loaders: LoaderUse, **changes: Any) -> Evidence:
    """A run whose GPU waits for the batches of this loader half of the time."""
    return run(**{"gpu": STARVED, "loaders": loaders, "ms": STARVED_MS, "waiting": EMPTY_QUEUE, **changes})


def make_rank(number: int, steps: int = 300, samples_per_s: float = 320.0, **ms: float) -> RankUse:
    """A rank for a case: phases by their milliseconds."""
    phase_ms = {name: ms.get(name, 0.0) for name in PHASES}
    return RankUse(number, "host", 100 + number, steps, sum(phase_ms.values()), samples_per_s, phase_ms, ended=True)


def two_ranks(**changes: Any) -> tuple[RankUse, RankUse]:
    """Two ranks alike, the second one changed."""
    usual: dict[str, Any] = {"data": 1.0, "forward": 30.0, "backward": 60.0, "optimizer": 9.0}
    return make_rank(0, **usual), make_rank(1, **{**usual, **changes})
