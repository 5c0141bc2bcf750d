"""Runs and code that have IN111, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from flatout.records.report import LineCost, Location
from tests.cases.code import cases_in
from tests.cases.evidence import HERE, Case, loader, on_gpu, run, worker_cost

_MS = {"data": 45.0, "forward": 20.0, "backward": 30.0, "optimizer": 5.0}
_STARVED = on_gpu(starved_share=0.42, drained_share=0.8, device_ms={"starved": 42.0, "step": 100.0})
_READY_BUT_SLOW = Waiting(0.0, None, rest_ms=45.0, median_ms=45.0, empty_share=0.0, ready_ms=45.0)
_DRAW = LineCost(Location("sampler.py", 21), "__iter__", "data", 0.35, 35.0)
_LOOP = LineCost(HERE, "train", "data", 0.1, 10.0)
_BODY = LineCost(Location("train.py", 14), "train", "backward", 0.3, 30.0)
_CUSTOM = loader(sampler="Balanced", cost=worker_cost(busy_share=0.1))
CASES = (
    Case(
        "finds it when batches lie ready but their successors' indices are drawn first",
        run(gpu=_STARVED, loaders=(_CUSTOM,), ms=_MS, waiting=_READY_BUT_SLOW, all_lines=(_DRAW, _LOOP, _BODY)),
        found=True,
    ),
    Case(
        "finds it without workers",
        run(
            loaders=(loader(num_workers=0, sampler="Balanced", cost=worker_cost(workers=0, fetch_ms_per_sample=0.1)),),
            ms=_MS,
            all_lines=(_DRAW, _LOOP, _BODY),
            cpus=1.0,
        ),
        found=True,
    ),
    Case(
        "quiet when it is the workers that are waited for",
        run(
            gpu=_STARVED,
            loaders=(_CUSTOM,),
            ms=_MS,
            waiting=Waiting(0.0, None, 45.0, 45.0, empty_share=1.0),
            all_lines=(_LOOP, _BODY),
        ),
        found=False,
    ),
    Case(
        "quiet when a large batch takes long to hand over",
        run(gpu=_STARVED, loaders=(_CUSTOM,), ms=_MS, waiting=_READY_BUT_SLOW, all_lines=(_LOOP, _BODY)),
        found=False,
    ),
    Case(
        "quiet when the dataset itself is slow in the main process",
        run(
            loaders=(loader(num_workers=0, sampler="Balanced", cost=worker_cost(workers=0, fetch_ms_per_sample=1.35)),),
            ms=_MS,
            all_lines=(LineCost(Location("data.py", 9), "__getitem__", "data", 0.45, 45.0), _BODY),
            cpus=1.0,
        ),
        found=False,
    ),
)

_SAMPLER = """
class Balanced(Sampler):
    def __init__(self, weights, count):
        self.weights, self.count = weights, count

    def __iter__(self):
        %s

loader = DataLoader(data, batch_size=32, sampler=Balanced(weights, 10000), num_workers=4)
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""

_case = cases_in(_SAMPLER)
SOURCE_CASES = (
    _case(
        "finds it when NumPy draws one at a time",
        "for _ in range(self.count):",
        "    yield int(np.random.choice(len(self.weights), p=self.weights))  # found",
    ),
    _case(
        "finds it when torch does",
        "for _ in range(self.count):",
        "    index = torch.multinomial(self.weights, 1).item()  # found",
        "    yield index",
    ),
    _case(
        "quiet when all are drawn at once",
        "drawn = torch.multinomial(self.weights, self.count, replacement=True)",
        "yield from drawn.tolist()",
    ),
    _case(
        "quiet when each epoch of a stream is drawn",
        "while True:",
        "    yield from torch.randperm(self.count).tolist()",
    ),
    _case(
        "quiet when each class has its own",
        "for ids in self.classes:",
        "    yield np.random.choice(ids, self.count, replace=False)",
    ),
    _case(
        "quiet when a draw looks at one only", "for _ in range(self.count):", "    yield random.randrange(self.count)"
    ),
)
