"""The loader starts new workers for every epoch.

What it is: without `persistent_workers=True` a DataLoader shuts its workers down at the end of each epoch and starts
new ones for the next: processes, imports, open files, caches, all again.

Why the GPU idles: between two epochs it waits until the new workers run and have produced a first batch.

How it shows in a run: the first step of each epoch waits many times longer than the others, beyond what loading one
batch takes.

How it shows in source: a DataLoader with workers and without `persistent_workers`, made once and iterated in a loop
over epochs, in a generator that restarts forever, or by Lightning.

The fix: `DataLoader(..., persistent_workers=True)`.

What to expect: an epoch begins as soon as one batch is ready. The shorter the epochs, the more it gains.

When it is fine: long epochs, where a start-up of a second does not matter; a dataset that must be reopened each epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cases import EPOCHS, Case, SourceCase, loader, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.input.throughput import gain_without_starts, start_cost
from flatout.records.evidence import Evidence, Waiting
from flatout.records.message import message, verbatim
from flatout.records.source import Fix, Related
from flatout.source.code import Code
from flatout.source.epochs import find_epoch_loop, is_framework_loader, known_workers
from flatout.source.syntax.edits import add_keyword, replace_node
from flatout.source.syntax.nodes import argument
from flatout.source.training.loaders import Loader, accepts_setting, loader_setting

CODE = "IN105"
REMEDY = "loader.persistent"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for use in run.loaders:
        if use.settings.get("persistent_workers") or use.made > 1:
            continue  # a loader that is made anew cannot keep its workers
        start = start_cost(run, use)
        gain = gain_without_starts(run, start) if start is not None else None
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
            cause=message("in105.cause", workers=use.workers, epochs=use.epochs, each_ms=start.each_ms),
            change=verbatim("persistent_workers=True"),
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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        if not made.trains or not loader_setting(made, "persistent_workers", code.values).is_off():
            continue
        if not known_workers(made, code):
            continue
        around = find_epoch_loop(made, code)
        if around is None and not is_framework_loader(made):
            continue
        module = made.function.module
        yield FoundInSource(
            severity="low",
            place=module.place(made.call),
            cause=message("in105.source_cause"),
            loader_setting="persistent_workers",
            change=verbatim("persistent_workers=True"),
            related=()
            if around is None
            else (Related(around[1].module.at(around[0].lineno), message("related.repeats")),),
            fix=_fix(made),
        )


def _fix(made: Loader) -> Fix | None:
    """Not a safe one: a dataset that lives on keeps what each epoch changed in it, and its random state."""
    given = argument(made.call, "num_workers", 5)
    written = argument(made.call, "persistent_workers")
    is_refused = any(keyword.arg is None for keyword in made.call.keywords) or not accepts_setting(
        made, "persistent_workers"
    )
    if given is None or is_refused:
        return None
    # Without workers torch refuses it: where their number is a setting, it has to follow.
    text = "True" if isinstance(given, ast.Constant) else f"{ast.unparse(given)} > 0"
    module = made.function.module
    if written is None:
        edit = add_keyword(module, made.call, f"persistent_workers={text}")
    else:
        edit = replace_node(module, written, text) if isinstance(written, ast.Constant) else None
    return None if edit is None else Fix(verbatim(f"persistent_workers={text}"), (edit,), is_safe=False)


_ONCE = """
loader = DataLoader(Images(), batch_size=32, num_workers=4)
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
_PER_EPOCH = """
def train_one_epoch(model, batches):
    for step, batch in enumerate(tqdm(batches)):
        model(batch).backward()
        optimizer.step()

def main(args):
    train_loader = DataLoader(Images(), args.batch, num_workers=args.workers)  # found
    for epoch in range(args.epochs):
        train_one_epoch(model, train_loader)

parser.add_argument("--workers", type=int, default=4)
"""
_FOREVER = """
def forever(loader):
    while True:
        for batch in loader:
            yield batch

class Trainer:
    def __init__(self, data):
        self.batches = forever(DataLoader(data, 32, num_workers=cpu_count()))  # found

    def train(self):
        for step in range(1000):
            model(next(self.batches)).backward()
            self.optimizer.step()
"""
_LIGHTNING = """
class Data(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=32, num_workers=4)  # found

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32, num_workers=4)
"""
_FOLDS = """
def fit(images):
    loader = DataLoader(images, 32, num_workers=4)
    for batch in loader:
        model(batch).backward()
        optimizer.step()

for fold in folds:
    fit(fold)
"""
SOURCE_CASES = (
    SourceCase(
        "finds it in a loop over epochs",
        "loader = DataLoader(Images(), batch_size=32, num_workers=4)  # found\n" + EPOCHS,
    ),
    SourceCase("finds it when each epoch is a call, with the number from an argument", _PER_EPOCH),
    SourceCase("finds it when a generator begins again", _FOREVER),
    SourceCase("finds it when Lightning goes through it", _LIGHTNING),
    SourceCase(
        "quiet when the workers stay",
        "loader = DataLoader(Images(), batch_size=32, num_workers=4, persistent_workers=True)\n" + EPOCHS,
    ),
    SourceCase(
        "quiet when that hangs on their number",
        "loader = DataLoader(Images(), 32, num_workers=4, persistent_workers=args.workers > 0)\n" + EPOCHS,
    ),
    SourceCase("quiet without workers", "loader = DataLoader(Images(), num_workers=0)\n" + EPOCHS),
    SourceCase("quiet when their number cannot be told", "loader = DataLoader(Images(), num_workers=n)\n" + EPOCHS),
    SourceCase("quiet when it is gone through once", _ONCE),
    SourceCase("quiet when each time has its own loader", _FOLDS),
    SourceCase(
        "quiet when it evaluates",
        "val_loader = DataLoader(Images(), batch_size=32, num_workers=4)\n" + EPOCHS,
    ),
)
