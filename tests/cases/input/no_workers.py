"""Runs and code that have IN101, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from tests.cases.code import EPOCHS, SourceCase
from tests.cases.evidence import Case, loader, on_gpu, run, worker_cost

_IN_MAIN = loader(num_workers=0, cost=worker_cost(workers=0, busy_share=None, queue_depth=None, startup_s=None))
CASES = (
    Case(
        "finds it when a GPU waits for the main process to decode",
        run(
            gpu=on_gpu(starved_share=0.6, drained_share=0.8, device_ms={"starved": 66.0, "step": 110.0}),
            loaders=(_IN_MAIN,),
            ms={"data": 67.0, "forward": 15.0, "backward": 25.0, "optimizer": 3.0},
        ),
        found=True,
    ),
    Case(
        "finds it on a CPU with a processor to spare",
        run(loaders=(_IN_MAIN,), ms={"data": 67.0, "forward": 30.0, "backward": 30.0}, cpus=4.0),
        found=True,
    ),
    Case("quiet when workers make the batches", run(ms={"data": 60.0, "forward": 30.0, "backward": 10.0}), found=False),
    Case(
        "quiet when the batch is there at once",
        run(loaders=(_IN_MAIN,), ms={"data": 1.0, "forward": 60.0, "backward": 40.0}),
        found=False,
    ),
    Case(
        "quiet when an iterator is made for every batch: workers would start each time",
        run(
            loaders=(_IN_MAIN,),
            ms={"data": 67.0, "forward": 30.0, "backward": 10.0},
            waiting=Waiting(1.0, 67.0, rest_ms=0.0, median_ms=0.0),
        ),
        found=False,
    ),
    Case(
        "quiet when making a batch takes no longer than taking it from a worker",
        run(loaders=(_IN_MAIN,), ms={"data": 0.9, "forward": 6.0, "backward": 4.0}),
        found=False,
    ),
    Case(
        "quiet when there is no processor to give to a worker",
        run(loaders=(_IN_MAIN,), ms={"data": 67.0, "forward": 30.0, "backward": 10.0}, cpus=1.0),
        found=False,
    ),
)

_PARSED = """
import argparse
from torch.utils.data import DataLoader

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--num-workers", type=int, default=0)  # found
    return parser.parse_args()

def train(args, dataset):
    loader = DataLoader(dataset, batch_size=32, num_workers=args.num_workers)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_DERIVED = """
from torch.utils.data import DataLoader

class Named(DataLoader):
    def __init__(self, dataset, names, num_workers=0):
        super().__init__(dataset, collate_fn=by(names), num_workers=num_workers)

loader = Named(Images(), ["x", "y"])  # found
"""
_PROPERTY = {
    "settings.py": """
class Config:
    @property
    def num_workers(self):
        return self._entries.get("num_workers", 0)  # found
""",
    "train.py": """
from settings import Config

def train(cfg: Config):
    loader = DataLoader(Images(), 32, num_workers=cfg.num_workers)
    for x in loader:
        model(x).backward()
        optimizer.step()
""",
}
_WITHOUT_GRADIENTS = """
def encode(model, data):
    loader = DataLoader(data, batch_size=32)
    with torch.no_grad():
        return [model(x) for x in loader], [show(x) for x in loader]

def train(model, batches):
    for x in batches:
        model(x).backward()
        optimizer.step()
        encode(model, x)
"""
_HANDED = """
def scores(model, data):
    loader = DataLoader(data, batch_size=32)
    return inference(model, loader)

def train(model, batches):
    for x in batches:
        model(x).backward()
        optimizer.step()
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when the call leaves it out",
        "from torch.utils.data import DataLoader\nloader = DataLoader(Images(), batch_size=32)  # found\n" + EPOCHS,
    ),
    SourceCase(
        "finds it when the call says so",
        "from torch.utils.data import DataLoader\nloader = DataLoader(Images(), num_workers=0)  # found\n" + EPOCHS,
    ),
    SourceCase("finds it at an argparse default", _PARSED),
    SourceCase(
        "finds it in a config file",
        {
            "train.py": "loader = torch.utils.data.DataLoader(data, 32, num_workers=cfg['data']['workers'])\n" + EPOCHS,
            "config.yaml": "data:\n  workers: 0  # found\n",
        },
    ),
    SourceCase("finds it when a class of the project's leaves it out", _DERIVED + EPOCHS),
    SourceCase(
        "finds it when datasets are put together",
        "data = ConcatDataset([Images(), Images()])\nloader = DataLoader(data, batch_size=32)  # found\n" + EPOCHS,
    ),
    SourceCase("finds it where a property has a default", _PROPERTY),
    SourceCase(
        "quiet when a class of the project's has workers",
        _DERIVED.replace("num_workers=0", "num_workers=8").replace("  # found", "") + EPOCHS,
    ),
    SourceCase(
        "quiet when rows of an array are all there is",
        "def rows(x):\n    return np.stack([x[at : at + 8] for at in range(99)])\n\n"
        "loader = DataLoader(rows(series), batch_size=32)\n" + EPOCHS,
    ),
    SourceCase("quiet when it is only gone over without gradients", _WITHOUT_GRADIENTS),
    SourceCase("quiet when it is only handed to an evaluation", _HANDED),
    SourceCase(
        "quiet when workers are given",
        "loader = torch.utils.data.DataLoader(Images(), batch_size=32, num_workers=4)\n" + EPOCHS,
    ),
    SourceCase(
        "quiet when the samples lie in memory",
        "data = TensorDataset(x, y)\nloader = DataLoader(data, batch_size=32)\n" + EPOCHS,
    ),
    SourceCase(
        "quiet when it cannot be told what arrives",
        "loader = DataLoader(Images(), num_workers=os.cpu_count())\nother = DataLoader(Images(), **settings)\n"
        + EPOCHS,
    ),
    SourceCase("quiet when nothing trains here", "loader = DataLoader(Images())\nfor x in loader:\n    show(x)\n"),
    SourceCase("quiet when it evaluates", "val_loader = DataLoader(Images())\n" + EPOCHS),
)
