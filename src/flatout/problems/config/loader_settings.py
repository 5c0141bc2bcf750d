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

from flatout.model.edits import Edits, Workers
from flatout.model.prediction import predict
from flatout.problems.config.ignored_settings import (
    Difference,
    IgnoredSetting,
    IgnoredSettings,
    describe,
    evidence,
    find_ignored_settings,
)
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, join_words
from flatout.problems.input.loading import (
    BUSY,
    busy_share,
    is_count,
    live_workers_if_missing,
    steady_wait_ms,
    workers_for,
)
from flatout.records.evidence import Evidence, LoaderUse, Value
from flatout.records.message import Message, message
from flatout.records.source import Edit, Fix, Related
from flatout.source.code import Code
from flatout.source.syntax.edits import add_keyword, replace_node

CODE = "CF801"
HIDES = True
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
    edits = Edits((Workers(workers),)) if workers > use.workers else None
    gain = predict(run, edits) if edits is not None else None
    is_worth = gain is not None and gain.mid >= _LEAST_GAIN
    yield FoundInRun(
        severity=None if is_worth else "low",
        location=use.made_at,
        evidence=evidence(found) | ({"workers": workers} if is_worth else {}),
        cause=message("cf801.cause", differences=describe(found)),
        change=_change(run, found),
        edits=edits if is_worth else None,
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
    checks = {"num_workers": live_workers_if_missing, "batch_size": _batch}
    for name in ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers"):
        configured = run.configured.setting(name)
        if configured is None:
            continue
        if name in checks:
            live = checks[name](run, use, configured.value)
        else:
            live = _live_if_other(run, use, name, configured.value)
        if live is not None:
            yield Difference(configured, live)


def _live_if_other(run: Evidence, use: LoaderUse, name: str, wanted: Value) -> Value | None:
    live = use.settings.get(name)
    # Scripts rightly pin nothing where there is no GPU to copy to; the others are of no effect without workers.
    matters = run.on_gpu if name == "pin_memory" else use.workers > 0
    if name == "prefetch_factor":
        is_known = is_count(wanted, least=1) and isinstance(live, int)
    else:
        is_known = isinstance(wanted, bool) and isinstance(live, bool)
    return live if matters and is_known and live != wanted else None


def _batch(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    live = use.batch_size
    # A loader of ready-made batches has 1, and so has one whose batches the script joins itself.
    if not is_count(wanted, least=1) or live is None or live == 1:
        return None
    ranks = max(1, run.report.run.ranks)
    a_step = run.samples_per_step or live
    explained = {live, live * ranks, round(a_step), round(a_step * ranks)}
    return None if wanted in explained else live


def _workers(run: Evidence, use: LoaderUse, found: list[Difference]) -> int:
    """Of the configured ones, as many as the training needs; 0 where workers are not what is missing."""
    wanted = next((differs.setting.value for differs in found if differs.item == "num_workers"), None)
    if not isinstance(wanted, int) or wanted <= use.workers or steady_wait_ms(run) < WORTH * run.step_ms:
        return 0
    busy = busy_share(run, use)
    if use.workers and (busy is None or busy < BUSY):
        return 0
    return min(wanted, workers_for(run, use))


def in_source(code: Code) -> Iterator[FoundInSource]:
    for ignored in find_ignored_settings(code):
        handed = ", ".join(f"{missed.name}={missed.handed or '…'}" for missed in ignored.missed)
        costs = any(missed.name in ("num_workers", "pin_memory") and not missed.is_cheaper for missed in ignored.missed)
        yield FoundInSource(
            place=ignored.loader.place,
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
        yield Related(other.place, message("related.same_number"))


def _fix(ignored: IgnoredSettings) -> Fix | None:
    """Only where one value is to be handed on, and it is at hand."""
    missed = ignored.missed[0]
    module = ignored.loader.function.module
    is_plain = missed.given is None or isinstance(missed.given, ast.Constant)
    if len(ignored.missed) > 1 or missed.handed is None or not is_plain:
        return None
    if missed.given is not None:
        edit: Edit | None = replace_node(module, missed.given, missed.handed)
    else:
        edit = add_keyword(module, ignored.loader.call, f"{missed.name}={missed.handed}")
    # Workers have random states of their own, and batches decide what is computed.
    return None if edit is None else Fix(message("cf801.fix", code=missed.handed), (edit,), is_safe=False)
