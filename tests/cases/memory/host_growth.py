"""Runs and code that have ME701, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import Holder, Series, StepMemory
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, MACHINE, Case, growing_series, loader, run, worker_cost


def _series(per_s: float, ends_at_s: float = 60.0, start: float = 2e9) -> dict[str, Series]:
    return {"main_rss_bytes": growing_series(start, per_s, ends_at_s)}


def _by_step(*rises: float, points: int = 80) -> StepMemory:
    """Bytes at so many steps; each rise is that of a step in its part of them. Every other step has a little more."""
    sizes, size = [], 4e8
    for step in range(points):
        size += rises[step * len(rises) // points]
        sizes.append(size + 1e6 * (step % 2))
    return StepMemory(tuple(map(float, range(points))), tuple(sizes))


_FILM = Holder("film", "main", HERE, 1.0, "tensor", True, 1e6)
_IN_MAIN = replace(loader(num_workers=0, dataset_len=10_000), epochs=1, cost=worker_cost(workers=0))
CASES = (
    Case("finds it when each step leaves something", run(series=_series(5e6), environment=MACHINE), found=True),
    Case(
        "finds it within seconds when a list keeps graphs",
        run(step_memory=_by_step(2e6, points=16), holders=(_FILM,), environment=MACHINE),
        found=True,
    ),
    Case("finds it by step when nobody knows what", run(step_memory=_by_step(2e6), environment=MACHINE), found=True),
    Case(
        "quiet when a few steps may be the allocator's own",
        run(step_memory=_by_step(4e6, points=16), environment=MACHINE),
        found=False,
    ),
    Case(
        "quiet when it jumps once",
        run(step_memory=_by_step(0.0, 0.0, 0.0, 3e7, 0.0, 0.0, 0.0), holders=(_FILM,), environment=MACHINE),
        found=False,
    ),
    Case(
        "quiet when it levels off by step",
        run(step_memory=_by_step(4e6, 4e6, 3e6, 1e5), holders=(_FILM,), environment=MACHINE),
        found=False,
    ),
    Case("quiet when a list is all that grows", run(step_memory=_by_step(0.0), holders=(_FILM,)), found=False),
    Case("quiet when it levels off", run(series=_series(20e6, ends_at_s=42.0), environment=MACHINE), found=False),
    Case("quiet when it breathes", run(series=_series(2e5), environment=MACHINE), found=False),
    Case(
        "quiet when a dataset in the main process may be filling its cache",
        run(series=_series(5e6), environment=MACHINE, loaders=(_IN_MAIN,)),
        found=False,
    ),
)

_KEPT = """
losses, total = [], 0
for x, y in loader:
    loss = criterion(model(x.to(device)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    %s
print(len(losses), total)
"""
_SUMMED = """
for x in loader:
    losses = []
    total = 0
    for head in heads:
        losses.append(criterion(head(model(x)), x))
        total += losses[-1]
    loss = sum(losses)
    loss.backward()
    optimizer.step()
"""
_METHOD = """
class Trainer:
    def step(self, x):
        losses = []
        loss = self.criterion(self.model(x))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        losses.append(loss)
        self.history.append(loss)  # found

    def run(self):
        for x in self.loader:
            self.step(x)
"""
SOURCE_CASES = (
    SourceCase("finds it when the object that trains keeps them", _METHOD),
    SourceCase("finds it when losses are listed", _KEPT % "losses.append(loss)  # found"),
    SourceCase("finds it when losses are summed", _KEPT % "total += loss  # found"),
    SourceCase("finds it when a sum is written out", _KEPT % "total = total + loss  # found"),
    SourceCase(
        "finds it when each of several losses is summed",
        (_KEPT % "totals = [a + b for a, b in zip(totals, losses)]  # found").replace(
            "loss.backward", "sum(losses).backward"
        ),
    ),
    SourceCase("quiet when the graph is left behind", _KEPT % "losses.append(loss.detach())"),
    SourceCase("quiet when a number is kept", _KEPT % "total += loss.item()"),
    SourceCase("quiet when the parts of one step's loss are summed", _SUMMED),
)
