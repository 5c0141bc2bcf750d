"""Runs and code that have IN105, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from tests.cases.code import EPOCHS, SourceCase
from tests.cases.evidence import Case, loader, on_gpu, run

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
