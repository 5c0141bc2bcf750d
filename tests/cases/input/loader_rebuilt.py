"""Runs and code that have IN106, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, loader, on_gpu, run, worker_cost

_SHORT = Waiting(0.05, 900.0, rest_ms=1.0, median_ms=1.0, empty_share=0.0, ready_ms=1.0)
_STARVED = on_gpu(starved_share=0.3, drained_share=0.3, device_ms={"starved": 45.0, "step": 150.0})
_MS = {"data": 46.0, "forward": 35.0, "backward": 60.0, "optimizer": 9.0}
_SCAN = LineCost(Location("data.py", 7), "__init__", "other", 0.2, 30.0)
_EACH = Waiting(1.0, 150.0, rest_ms=0.0, median_ms=0.0)
_EACH_MS = {"data": 150.0, "forward": 20.0, "backward": 40.0, "optimizer": 5.0}
_EACH_STARVED = on_gpu(starved_share=0.69, drained_share=0.8, device_ms={"starved": 149.0, "step": 215.0})
CASES = (
    Case(
        "finds it when every epoch makes its loader",
        run(
            gpu=_STARVED,
            loaders=(loader(persistent_workers=False, epochs=20, made=20, iterator_s=0.3),),
            ms=_MS,
            waiting=_SHORT,
        ),
        found=True,
    ),
    Case(
        "finds it when each new dataset lists its files again",
        run(
            loaders=(loader(num_workers=0, made=10, epochs=10, cost=None),),
            ms={"data": 1.0, "forward": 50.0, "backward": 70.0, "other": 31.0},
            all_lines=(_SCAN,),
        ),
        found=True,
    ),
    Case(
        "finds it when workers start for every step",
        run(
            gpu=_EACH_STARVED,
            loaders=(loader(epochs=300),),
            ms=_EACH_MS,
            waiting=_EACH,
            all_lines=(LineCost(HERE, "train", "data", 0.69, 150.0),),
        ),
        found=True,
    ),
    Case(
        "finds it without workers when shuffling for every step takes the time",
        run(
            loaders=(loader(num_workers=0, epochs=300, cost=worker_cost(workers=0, fetch_ms_per_sample=0.2)),),
            ms=_EACH_MS,
            waiting=_EACH,
            cpus=1.0,
        ),
        found=True,
    ),
    Case(
        "quiet when one loader is used for all epochs",
        run(gpu=_STARVED, loaders=(loader(epochs=20),), ms=_MS, waiting=_SHORT),
        found=False,
    ),
    Case(
        "quiet when making it costs nothing",
        run(loaders=(loader(num_workers=0, made=10, epochs=10, cost=None, made_at=HERE),)),
        found=False,
    ),
    Case(
        "quiet when the whole data is one batch",
        run(gpu=_EACH_STARVED, loaders=(loader(epochs=300, dataset_len=32),), ms=_EACH_MS, waiting=_EACH),
        found=False,
    ),
)

_REBUILT = """
for epoch in range(10):
    loader = DataLoader(dataset, batch_size=32, num_workers=8)  # found
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_FOLDS = """
for fold, (train_ids, _) in enumerate(splits):
    loader = DataLoader(Subset(dataset, train_ids), batch_size=32, num_workers=8)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_NEXT = """
for step in range(1000):
    batch = next(iter(loader))  # found
    model(batch).backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when every epoch makes its loader", _REBUILT),
    SourceCase("finds it when each step begins a new epoch", _NEXT),
    SourceCase("quiet when each fold has its own data", _FOLDS),
    SourceCase(
        "quiet when it is made once",
        "loader = DataLoader(dataset)\n"
        + _REBUILT.replace("    loader = DataLoader(dataset, batch_size=32, num_workers=8)  # found\n", ""),
    ),
    SourceCase("quiet when the iterator is kept", _NEXT.replace("next(iter(loader))  # found", "next(batches)")),
)
