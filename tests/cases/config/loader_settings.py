"""Runs and code that have CF801, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Configured, Setting, Value
from flatout.records.report import Location
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, loader, on_gpu, run, worker_cost


def _configured(call: dict[str, str] | None = None, **values: Value) -> Configured:
    places = Location("config.yaml", 12)
    return Configured(tuple(Setting(name, name, value, places) for name, value in values.items()), call)


_TWO = loader(num_workers=2, prefetch_factor=2, persistent_workers=False, cost=worker_cost(workers=2, busy_share=0.4))
_NONE = loader(
    num_workers=0,
    cost=worker_cost(workers=0, busy_share=None, queue_depth=None, startup_s=None),
    made_at=HERE,
)
CASES = (
    Case(
        "finds it when 24 workers are configured and the call says 2",
        run(
            gpu=on_gpu(),
            loaders=(_TWO,),
            configured=_configured({"num_workers": "literal"}, num_workers=24, prefetch_factor=4, pin_memory=True),
        ),
        found=True,
    ),
    Case(
        "finds it when the workers of the command line never reach a starved GPU",
        run(
            gpu=on_gpu(starved_share=0.6, drained_share=0.8, device_ms={"starved": 66.0, "step": 110.0}),
            loaders=(_NONE,),
            ms={"data": 67.0, "forward": 15.0, "backward": 25.0, "optimizer": 3.0},
            configured=Configured((Setting("num_workers", "--num-workers 8", 8),), {"batch_size": "computed"}),
        ),
        found=True,
    ),
    Case(
        "finds it when the batch of the config is not the loader's, nor that of a step",
        run(configured=_configured(batch_size=256)),
        found=True,
    ),
    Case(
        "quiet when all arrived",
        run(configured=_configured(num_workers=4, batch_size=32, prefetch_factor=2)),
        found=False,
    ),
    Case(
        "quiet when the script cuts its workers down to the processors",
        run(loaders=(_TWO,), cpus=2.0, configured=_configured({"num_workers": "computed"}, num_workers=24)),
        found=False,
    ),
    Case(
        "quiet when accumulation makes the configured batch of several of the loader's",
        run(samples=128.0, configured=_configured(batch_size=128)),
        found=False,
    ),
    Case(
        "quiet when there are no workers to which prefetching and persistence could apply",
        run(loaders=(_NONE,), configured=_configured(num_workers=0, prefetch_factor=4, persistent_workers=True)),
        found=False,
    ),
    Case(
        "quiet when there is no GPU to pin for",
        run(loaders=(loader(pin_memory=False),), configured=_configured(pin_memory=True)),
        found=False,
    ),
)

_LOOP = """
    for batch in loader:
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
"""
_YAML = "data:\n  root: data\n  num_workers: 24\ntrain:\n  lr: 0.1\n"
_PARSED = """
import argparse
from torch.utils.data import DataLoader

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--num-workers", type=int, default=8)
    return parser.parse_args()

def main():
    args = options()
    print(f"{args.num_workers} workers")
    loader = DataLoader(Images(), batch_size=32, num_workers=WORKERS
    val_loader = DataLoader(Images(), batch_size=32, num_workers=2)
    optimizer = SGD(model.parameters(), lr=args.lr)
""" + _LOOP.lstrip("\n")
_STORED = """
class Data:
    def __init__(self, cfg):
        self.num_workers = cfg.num_workers
        self.prefetch_factor = cfg.prefetch_factor

    def loader(self):
        return DataLoader(Images(), 32, num_workers=KEPT

@dataclass
class Config:
    num_workers: int = 4
    prefetch_factor: int = 8

def main(cfg: Config):
    loader = Data(cfg).loader()
""" + _LOOP.lstrip("\n")
_BUILDER = """
def build(data, workers, shuffle=True):
    return DataLoader(data, 32, shuffle=shuffle, IGNORED

def main(args):
    loader = build(Images(), args.workers)
""" + _LOOP.lstrip("\n")
_READ = """
import yaml

cfg = yaml.safe_load(open("c.yaml"))

def main():
    loader = DataLoader(Images(cfg["data"]["root"]), 32, WORKERS
    optimizer = SGD(model.parameters(), lr=cfg["train"]["lr"])
""" + _LOOP.lstrip("\n")
SOURCE_CASES = (
    SourceCase(
        "finds it when a config file says 24 and the call 2",
        {"train.py": _READ.replace("WORKERS", "num_workers=2)  # found"), "c.yaml": _YAML},
    ),
    SourceCase("finds it when an option is only printed", _PARSED.replace("WORKERS", "2)  # found")),
    SourceCase("finds it when settings are stored and go no further", _STORED.replace("KEPT", "2)  # found")),
    SourceCase(
        "finds it when a function does not read its parameter", _BUILDER.replace("IGNORED", "num_workers=2)  # found")
    ),
    SourceCase("finds it when the call leaves it out", _BUILDER.replace("IGNORED", "pin_memory=True)  # found")),
    SourceCase("quiet when the option arrives", _PARSED.replace("WORKERS", "args.num_workers)")),
    SourceCase("quiet when the values agree", _PARSED.replace("WORKERS", "8)")),
    SourceCase(
        "quiet when the option serves something else",
        _PARSED.replace("WORKERS", "2)") + "    prepare(pool=Pool(args.num_workers))\n",
    ),
    SourceCase(
        "quiet when the fields arrive",
        _STORED.replace("KEPT", "self.num_workers, prefetch_factor=self.prefetch_factor)"),
    ),
    SourceCase(
        "quiet when the section is handed on as a whole",
        {"train.py": _READ.replace("WORKERS", "**cfg['data'])"), "c.yaml": _YAML},
    ),
    SourceCase(
        "quiet when the config is of another program",
        {"train.py": _READ.replace("WORKERS", "num_workers=2)"), "jobs.yaml": "jobs:\n  num_workers: 24\n  queue: a\n"},
    ),
    SourceCase(
        "quiet when the options are another script's",
        {"train.py": _BUILDER.replace("IGNORED", "num_workers=workers)"), "serve.py": _PARSED.split("    loader =")[0]},
    ),
)
