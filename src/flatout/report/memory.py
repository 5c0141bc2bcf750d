"""What `flatout memory` shows: what the loader can come to take, against what there is, and a setting that fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from flatout.records.memory import SCHEMA, LoaderPlan, MemoryVerdict
from flatout.report.layout import add_label, draw_lines, wrap_sentence
from flatout.report.text import figure, percent
from flatout.words import english
from flatout.words.codec import encode

_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def to_json(verdict: MemoryVerdict) -> dict[str, Any]:
    value = encode(verdict)
    value["need"]["ram_bytes"] = verdict.need.ram_bytes
    if verdict.safe_need is not None:
        value["safe_need"]["ram_bytes"] = verdict.safe_need.ram_bytes
    return {"schema": SCHEMA, "fits": fits(verdict), **value}


def fits(verdict: MemoryVerdict) -> bool:
    """What cannot be read is no obstacle."""
    return verdict.fits_ram is not False and verdict.fits_shm is not False


def render(verdict: MemoryVerdict, *, width: int, color: bool, unicode: bool, quiet: bool = False) -> str:
    if quiet:
        return draw_lines(list(_safe(verdict, width)), width, color, unicode)
    lines = [Text(), Text(" " + _settings(verdict.plan), "bold"), Text(), *_needs(verdict, width)]
    return draw_lines([*lines, Text(), *_safe(verdict, width)], width, color, unicode)


def _settings(plan: LoaderPlan) -> str:
    words = f"{plan.workers} worker{'s' if plan.workers != 1 else ''} × prefetch {plan.prefetch} × batch {plan.batch}"
    return words + (f" × {plan.ranks} ranks" if plan.ranks > 1 else "")


def _needs(verdict: MemoryVerdict, width: int) -> Iterator[Text]:
    plan, wanted, limits = verdict.plan, verdict.need, verdict.limits
    yield from wrap_sentence("A sample", f"{_bytes(plan.sample_bytes)} ({english(verdict.sample_from)})", width)
    in_flight = f"{wanted.batches_in_flight} batches of {_bytes(wanted.batch_bytes)} in flight"
    if plan.ranks > 1:
        in_flight += " in each rank"
    if plan.workers:
        yield _judged("/dev/shm", wanted.shm_bytes, limits.shm_free_bytes, verdict.fits_shm)
        yield from wrap_sentence("", in_flight, width)
    if wanted.caches:
        yield from wrap_sentence("Cache", _cache(verdict), width)
    yield _judged("RAM", wanted.ram_bytes, limits.ram_free_bytes, verdict.fits_ram)
    parts = [
        (wanted.shm_bytes, "in flight"),
        (wanted.making_bytes, "being assembled"),
        (wanted.pinned_bytes, "pinned"),
        (wanted.cache_bytes, "cache"),
        (wanted.process_bytes, "processes (assumed)"),
    ]
    yield from wrap_sentence("", " + ".join(f"{_bytes(part)} {name}" for part, name in parts if part), width)
    if verdict.measured_peak_bytes:
        yield from wrap_sentence("", f"peak memory of the run: {_bytes(verdict.measured_peak_bytes)}", width)


def _judged(label: str, wanted: float, free: float | None, fit: bool | None) -> Text:
    line = Text(f"{_bytes(wanted)} at most")
    if free is None:
        return add_label(label, line + Text(", limit not known"))
    line += Text(f" of {_bytes(free)} free: ")
    word = ("fits", "green") if fit else ("does not fit", "bold red")
    return add_label(label, line + Text(*word))


def _cache(verdict: MemoryVerdict) -> str:
    plan, wanted = verdict.plan, verdict.need
    each_bytes = wanted.cache_bytes / wanted.caches
    if plan.cache_is_shared:
        words = f"{_bytes(each_bytes)}, one for the host"
    else:
        ranks = f" × {plan.ranks} ranks" if plan.ranks > 1 else ""
        total = _bytes(wanted.cache_bytes)
        words = f"{_bytes(each_bytes)} × {max(1, plan.workers)} workers{ranks} = {total}: one in each worker"
    if verdict.cache is not None:
        view = verdict.cache
        words += (
            f"; holds {percent(view.share_of_dataset)} of the data, so it hits {percent(view.kept_hit_rate)} "
            f"if it never evicts, {percent(view.lru_hit_rate)} with LRU (shuffled)"
        )
    return words


def _safe(verdict: MemoryVerdict, width: int) -> Iterator[Text]:
    plan, chosen, wanted = verdict.plan, verdict.safe, verdict.safe_need
    if chosen is None or wanted is None:
        yield from wrap_sentence("Fits here", "nothing: use a smaller batch, smaller samples or more memory", width)
        return
    if chosen == plan:
        yield from wrap_sentence("Fits here", "the current settings", width)
        return
    words = f"num_workers={chosen.workers}"
    if chosen.workers:
        words += f", prefetch_factor={chosen.prefetch}"
    if plan.cache_bytes:
        words += ", no cache" if not chosen.cache_bytes else f", one shared cache of {_bytes(chosen.cache_bytes)}"
    words += f": at most {_bytes(wanted.ram_bytes)} RAM and {_bytes(wanted.shm_bytes)} of /dev/shm"
    if chosen.workers < plan.workers and verdict.fits_ram and verdict.fits_shm:
        words += f" ({verdict.limits.cpus:g} processors)"
    yield from wrap_sentence("Fits here", words, width)


def _bytes(value: float) -> str:
    for step, unit in _STEPS:
        if value >= step:
            return f"{figure(value / step)} {unit}"
    return f"{value:.0f} B"
