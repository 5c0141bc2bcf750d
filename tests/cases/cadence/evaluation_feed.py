"""Runs and code that have CA602, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evaluations
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, loader, on_gpu, run, worker_cost

_MS = {"data": 1.0, "forward": 20.0, "backward": 40.0, "optimizer": 5.0, "eval": 30.0}
_SOME = Evaluations(10, 0.9, HERE)


def _case(name: str, found: bool, eval_ms: float = 30.0, gpu: bool = True, **validation: object) -> Case:
    cost = worker_cost(workers=validation.get("num_workers", 0), fetch_ms_per_sample=validation.pop("sample_ms", 2.5))
    use = loader(**{"number": 2, "trains": False, "epochs": 10, "dataset_len": 300, "cost": cost, **validation})
    return Case(
        name,
        run(
            gpu=on_gpu() if gpu else None,
            ms={**_MS, "eval": eval_ms},
            loaders=(loader(epochs=10), use),
            evaluations=_SOME,
        ),
        found,
    )


CASES = (
    _case("finds it when the main process loads the validation data", found=True, num_workers=0),
    _case("finds it when a GPU evaluates one sample at a time", found=True, num_workers=4, batch_size=1, sample_ms=0.5),
    _case("quiet when its workers keep up", found=False, num_workers=4),
    _case("quiet when the samples are there at once", found=False, num_workers=0, sample_ms=0.01),
    _case("quiet when the evaluation is short", found=False, num_workers=0, eval_ms=1.0),
)

_LOADERS = """
train_loader = DataLoader(train_set, batch_size=32, num_workers=4)
val_loader = DataLoader(val_set, %s num_workers=4)%s
for batch in train_loader:
    model(batch).backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when one sample at a time is evaluated", _LOADERS % ("batch_size=1,", "  # found")),
    SourceCase("quiet when batches are evaluated", _LOADERS % ("batch_size=64,", "")),
    SourceCase("quiet when the batch is not known", _LOADERS % ("batch_size=size(),", "")),
)
