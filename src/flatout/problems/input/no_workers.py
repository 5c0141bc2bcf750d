"""The training process loads its batches itself.

What it is: the DataLoader has `num_workers=0`, so reading, decoding and collating happen between two training steps, in
the process that trains.

Why the GPU idles: while the main process makes a batch it launches nothing, and the device runs dry.

How it shows in a run: time in `data` with no worker process, at about the cost of a sample times the batch.

How it shows in source: a DataLoader of a training without `num_workers`, or to which 0 comes: from the call itself, an
argparse default, a dataclass field, a config file. The finding is reported where the 0 is written.

The fix: `DataLoader(..., num_workers=N, persistent_workers=True)`. N is what keeps the training fed: the time of a
sample times the samples a step, over the time the rest of the step takes, and no more than the CPUs less one.

What to expect: the step shrinks to what is left of it, or to the loader's time shared by its workers, whichever is
longer.

When it is fine: the batches are there at once (a tensor in memory), or the wait is below 5% of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import EPOCHS, Case, SourceCase, loader, on_gpu, run, worker_cost
from flatout.problems.found import FoundInRun, FoundInSource, setting_words
from flatout.problems.input.symptoms import dearest_line, has_missing_workers
from flatout.problems.input.throughput import gain_with_workers, is_per_batch, workers_for
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence, Waiting
from flatout.records.message import message, verbatim
from flatout.records.source import Edit, Fix, Related
from flatout.source.code import Code
from flatout.source.flow.value_edits import replace_value
from flatout.source.syntax.edits import add_keyword
from flatout.source.syntax.nodes import has_star_arguments
from flatout.source.training.loaders import (
    Loader,
    Setting,
    accepts_setting,
    has_device_samples,
    is_in_memory,
    loader_setting,
)

CODE = "IN101"
REMEDY = "loader.workers"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or use.workers or not run.step_ms or run.starved_ms < WORTH * run.step_ms:
        return
    if is_per_batch(run):
        return  # workers would be started for every batch
    if has_missing_workers(run):
        return  # said as what it is: a setting that went astray
    workers = workers_for(run, use)
    gain = gain_with_workers(run, use, workers) if workers else None
    if gain is None:
        return
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": 0,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "sample_ms": round(use.sample_ms or 0.0, 3),
            "cpus": run.cpus,
            "workers": workers,
            **dearest_line(run),
        },
        cause=message("in101.cause", data_ms=run.phase("data").ms, step_ms=run.step_ms),
        change=verbatim(f"num_workers={workers}, persistent_workers=True"),
        predicted_gain=gain,
    )


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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        # A worker cannot put anything on a device.
        if not made.trains or is_in_memory(made, code.project) or has_device_samples(made, code.project):
            continue
        workers = loader_setting(made, "num_workers", code.values)
        if not workers.is_off():
            continue
        here = made.function.module.place(made.call)
        value = workers.value
        written = here if value is None or value.is_direct else value.place
        yield FoundInSource(
            place=value.place if value is not None and value.is_direct else written,
            cause=message("in101.source_cause", setting=setting_words("num_workers", value)),
            change=message("in101.source_change"),
            loader_setting="num_workers",
            related=() if written == here else (Related(here, message("related.reaches_loader")),),
            fix=_fix(made, workers, code),
        )


def _fix(made: Loader, workers: Setting, code: Code) -> Fix | None:
    """Not a safe one: random numbers that samples draw come from the workers' own generators then."""
    value, module, number = workers.value, made.function.module, code.project.workers
    if _repeats_itself(made, code):
        return None
    stays = loader_setting(made, "persistent_workers", code.values).state == "missing"
    if value is not None and not value.is_direct:
        # No persistent_workers: torch refuses them to whoever asks for no workers on the command line.
        found = replace_value(code.project, value, number, "worker")
        return None if found is None else Fix(verbatim(f"num_workers {number}"), (found,), is_safe=False)
    if has_star_arguments(made.call) or (value is None and not accepts_setting(made, "num_workers")):
        return None  # a keyword that arrives twice is an error, and so is one that is not known
    keywords = [] if value is not None else [f"num_workers={number}"]
    keywords += ["persistent_workers=True"] if stays and accepts_setting(made, "persistent_workers") else []
    edits = [] if value is None else [Edit(value.place, str(number))]
    more = add_keyword(module, made.call, ", ".join(keywords)) if keywords else None
    if keywords and more is None:
        return None
    words = f"num_workers={number}" + (", persistent_workers=True" if stays else "")
    return Fix(verbatim(words), (*edits, more) if more is not None else tuple(edits), is_safe=False)


def _repeats_itself(made: Loader, code: Code) -> bool:
    """A stream that is not shared out gives each of its samples once for every worker."""
    cls = code.project.class_of(made.dataset, made.function) if made.dataset is not None else None
    if cls is None or "get_worker_info" in cls.module.text:
        return False
    by_index = code.project.methods(cls, "__getitem__")
    return code.project.is_a(cls, "IterableDataset") or not by_index


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
