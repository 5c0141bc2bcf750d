"""A configured loader setting has no effect: the DataLoader has another value.

What it is: the command line or a config file sets `num_workers`, `batch_size`, `prefetch_factor`, `pin_memory` or
`persistent_workers`, but the DataLoader that trains has another value: the code that makes it does not pass it on.

Why the GPU idles: the setting that should keep it fed is not applied; changing it has no effect.

How it shows in a run: the live DataLoader's value differs from the configured one, and neither the number of ranks, the
CPUs nor gradient accumulation explain it. The finding has the table "item | configured | live".

How it shows in source: the DataLoader that trains has a number in its call, or leaves the setting out, while an option,
a config file, a field or a parameter of the function around it sets another, which is only stored, checked or printed.
The finding is reported at the loader and names both places.

The fix: pass the value on where the loader is made:

    DataLoader(dataset, num_workers=2)                                   # before
    DataLoader(dataset, num_workers=config.num_workers, prefetch_factor=config.prefetch_factor)   # after

Where workers are missing, `loader.workers` adds them from outside.

What to expect: what the configured value would have brought, which for workers is reckoned from the time of a sample.

When it is fine: the value is overridden on purpose; then remove it from the config, so that nobody tunes it in vain.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, SourceCase, loader, on_gpu, run, worker_cost
from flatout.problems.config.differences import Difference, describe, evidence
from flatout.problems.config.ignored_settings import IgnoredSetting, IgnoredSettings, find_ignored_settings
from flatout.problems.found import FoundInRun, FoundInSource, join_words
from flatout.problems.input.symptoms import is_count, live_workers_if_missing
from flatout.problems.input.throughput import (
    BUSY,
    busy_share,
    epoch_start_ms,
    gain_with_workers,
    steady_wait_ms,
    workers_for,
)
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Configured, Evidence, LoaderUse, Setting, Value
from flatout.records.message import Message, message
from flatout.records.report import Gain, Location
from flatout.records.source import Edit, Fix, Related
from flatout.source.code import Code
from flatout.source.syntax.edits import add_keyword, replace_node

CODE = "CF801"
REMEDY = None
_LEAST_GAIN = 1.01


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not run.configured.settings:
        return
    found = list(_differences(run, use))
    if not found:
        return
    workers = _workers(run, use, found)
    gain = _gain(run, use, workers)
    is_worth = gain is not None
    yield FoundInRun(
        severity=None if is_worth else "low",
        location=use.made_at,
        evidence=evidence(found) | ({"workers": workers} if is_worth else {}),
        cause=message("cf801.cause", differences=describe(found)),
        change=_change(run, found),
        predicted_gain=gain,
        remedy="loader.workers" if is_worth else None,
    )


def _change(run: Evidence, found: list[Difference]) -> Message:
    values = ", ".join(f"{differs.item}={differs.setting.value}" for differs in found)
    change = message("cf801.change", values=values)
    workers = next((differs.setting.value for differs in found if differs.item == "num_workers"), 0)
    if isinstance(workers, int) and workers > run.cpus:
        return message("cf801.change_too_many", change=change, workers=workers, cpus=run.cpus)
    return change


def _differences(run: Evidence, use: LoaderUse) -> Iterator[Difference]:
    checks = {
        "num_workers": live_workers_if_missing,
        "batch_size": _batch,
        "prefetch_factor": _prefetch,
        "pin_memory": _pinning,
        "persistent_workers": _persistence,
    }
    for name, live_value in checks.items():
        configured = run.configured.setting(name)
        live = None if configured is None else live_value(run, use, configured.value)
        if configured is not None and live is not None:
            yield Difference(configured, live)


def _batch(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    live = use.batch_size
    # A loader of ready-made batches has 1, and so has one whose batches the script joins itself.
    if not is_count(wanted, least=1) or live is None or live == 1:
        return None
    ranks = max(1, run.report.run.ranks)
    a_step = run.samples_per_step or live
    explained = {live, live * ranks, round(a_step), round(a_step * ranks)}
    return None if wanted in explained else live


def _prefetch(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    live = use.settings.get("prefetch_factor")
    if not is_count(wanted, least=1) or not use.workers or not isinstance(live, int):
        return None
    return None if live == wanted else live


def _pinning(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    """Scripts rightly pin nothing where there is no GPU to copy to."""
    live = use.settings.get("pin_memory")
    if not isinstance(wanted, bool) or not isinstance(live, bool) or not run.on_gpu:
        return None
    return None if live == wanted else live


def _persistence(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    live = use.settings.get("persistent_workers")
    if not isinstance(wanted, bool) or not isinstance(live, bool) or not use.workers:
        return None
    return None if live == wanted else live


def _workers(run: Evidence, use: LoaderUse, found: list[Difference]) -> int:
    """Of the configured ones, as many as the training needs; 0 where workers are not what is missing."""
    wanted = next((differs.setting.value for differs in found if differs.item == "num_workers"), None)
    if not isinstance(wanted, int) or wanted <= use.workers or steady_wait_ms(run) < WORTH * run.step_ms:
        return 0
    busy = busy_share(run, use)
    if use.workers and (busy is None or busy < BUSY):
        return 0
    return min(wanted, workers_for(run, use))


def _gain(run: Evidence, use: LoaderUse, workers: int) -> Gain | None:
    gain = gain_with_workers(run, use, workers, epoch_start_ms(run)) if workers > use.workers else None
    return gain if gain is not None and gain.mid >= _LEAST_GAIN else None


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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for ignored in find_ignored_settings(code):
        handed = ", ".join(f"{missed.name}={missed.handed or '…'}" for missed in ignored.missed)
        costs = any(missed.name in ("num_workers", "pin_memory") and not missed.is_cheaper for missed in ignored.missed)
        yield FoundInSource(
            place=ignored.loader.function.module.place(ignored.loader.call),
            cause=join_words([_missed_words(missed) for missed in ignored.missed]),
            change=message("cf801.source_change", values=handed),
            loader_setting=ignored.missed[0].name,
            severity="medium" if costs else "low",
            related=tuple(_both_places(ignored)),
            fix=_fix(ignored),
        )


def _missed_words(missed: IgnoredSetting) -> Message:
    first = missed.declared[0]
    if missed.given is not None:
        state = message("problems.setting_is", setting=missed.name, value=missed.value)
    else:
        state = message("problems.setting_missing", setting=missed.name)
    if first.kind == "parameter":
        return message("cf801.source_parameter", state=state, option=first.written)
    if first.value is None:
        return message("cf801.source_unknown", state=state, option=first.written)
    return message("cf801.source_known", state=state, option=first.written, value=first.value)


def _both_places(ignored: IgnoredSettings) -> Iterator[Related]:
    for missed in ignored.missed:
        for declared in missed.declared:
            known = message("problems.setting_is", setting=declared.written, value=declared.value)
            setting = declared.written if declared.value is None else known
            yield Related(declared.place, message("related.set_here", setting=setting))
    for other in ignored.alike:
        yield Related(other.function.module.place(other.call), message("related.same_number"))


def _fix(ignored: IgnoredSettings) -> Fix | None:
    """Only where one value is to be handed on, and it is at hand."""
    missed = ignored.missed[0]
    module = ignored.loader.function.module
    if len(ignored.missed) > 1 or missed.handed is None or (missed.given is not None and not _is_plain(missed.given)):
        return None
    if missed.given is not None:
        edit: Edit | None = replace_node(module, missed.given, missed.handed)
    else:
        edit = add_keyword(module, ignored.loader.call, f"{missed.name}={missed.handed}")
    # Workers have random states of their own, and batches decide what is computed.
    return None if edit is None else Fix(message("cf801.fix", code=missed.handed), (edit,), is_safe=False)


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


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
