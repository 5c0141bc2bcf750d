"""What was seen inside the processes that fetch for a loader: the lines their time went to, and what they keep."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from flatout.diagnose.loaders import loader_of, same_loaders
from flatout.diagnose.ranks import Rank
from flatout.diagnose.sites import Place, line_totals
from flatout.records.evidence import CacheUse, LoaderUse, NarrowCopy, Padding
from flatout.records.message import Message, message
from flatout.records.report import LineCost, Location
from flatout.store.recording import Recording
from flatout.store.run import StoredRun

WORKER = "worker"
# Fewer looks than this say nothing about where the time goes.
_FEWEST_LOOKS = 10
_MOST_LINES = 100
# Batches that are sorted together, usually: enough to be even, few enough to stay random.
_CHUNK = 50


def worker_lines(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse | None) -> tuple[LineCost, ...]:
    """Lines by their share of a worker's time at work, and in milliseconds of a sample."""
    if use is None or not use.workers or use.sample_ms is None:
        return ()
    seconds: dict[Place, float] = defaultdict(float)
    looks = 0.0
    for recording in _fetching_for(run, ranks, use):
        lines = run.lines_of(recording)
        if lines is None:
            continue
        looks += _looks(lines)
        for (place, _), weight in line_totals(lines).items():
            if place is not None:
                seconds[place] += weight
    total = sum(seconds.values())
    if looks < _FEWEST_LOOKS or not total:
        return ()
    costs = [
        LineCost(Location(file, line), function, WORKER, weight / total, use.sample_ms * weight / total)
        for (file, line, function), weight in seconds.items()
    ]
    costs.sort(key=lambda cost: (-cost.share, cost.location.file, cost.location.line))
    return tuple(costs[:_MOST_LINES])


def _looks(lines: Recording) -> float:
    last = dict(zip(lines.column("line", "line").tolist(), lines.column("line", "samples").tolist(), strict=True))
    return float(sum(last.values()))


def caches(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse | None) -> tuple[CacheUse, ...]:
    """What the dataset of the training loader keeps, by name; only what was asked for something."""
    if use is None:
        return ()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for recording in _fetching_for(run, ranks, use):
        for name, value in _last_of_each(recording).items():
            found[name].append(value)
    uses = (_cache(name, values) for name, values in found.items())
    return tuple(use for use in uses if use is not None)


def _last_of_each(recording: Recording) -> dict[str, dict[str, Any]]:
    """Running totals: the last counts. Of two datasets with the same cache in one process, the one used most."""
    last = {(v["name"], v.get("dataset")): v for v in recording.values("cache") if isinstance(v, dict)}
    by_use = sorted(last.values(), key=lambda value: value.get("samples") or 0)
    found = {value["name"]: value for value in by_use}
    return {name: value for name, value in _joined(found).items() if value["kind"] != "counters"}


def _joined(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """An object that counts hits and misses counts those of the dict it holds."""
    for name, value in found.items():
        if value["kind"] == "counters":
            for inner, held in found.items():
                if held["kind"] == "dict" and inner.startswith(name + "."):
                    held["hits"], held["misses"] = value["hits"], value["misses"]
    return found


def _cache(name: str, values: Sequence[Mapping[str, Any]]) -> CacheUse | None:
    kind, capacity = str(values[0].get("kind")), values[0].get("capacity")
    samples = _sum(values, "samples")
    if kind == "dict":
        seen, new, first = (
            _sum(values, "seen_samples"),
            _sum(values, "new_keys"),
            [v["first"] for v in values if v["first"]],
        )
        # The first samples find nothing, so they put in what they ask for.
        asked = seen * sum(keys for keys, _ in first) / max(1, sum(count for _, count in first))
        evicts = _sum(values, "thrown_out") > 0
    else:
        seen, new, asked = samples, _sum(values, "misses"), _sum(values, "hits") + _sum(values, "misses")
        evicts = capacity is not None and new > _sum(values, "entries")
    if not seen or not asked:
        return None
    hit_rate = 1.0 - new / asked
    if kind == "dict" and all(value.get("hits") is not None for value in values):
        hits, misses = _sum(values, "hits"), _sum(values, "misses")
        hit_rate = hits / max(1.0, hits + misses)
    return CacheUse(
        name=name,
        kind=kind,
        processes=len(values),
        entries=fmean(value["entries"] for value in values),
        capacity=int(capacity) if isinstance(capacity, int) else None,
        hit_rate=min(1.0, max(0.0, hit_rate)),
        keys_per_sample=asked / seen,
        evicts=evicts,
    )


def _sum(values: Sequence[Mapping[str, Any]], what: str) -> float:
    return float(sum(value.get(what) or 0 for value in values))


def file_bytes(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse | None) -> float | None:
    """The median of the files that were asked for their size."""
    if use is None:
        return None
    values = [value for recording in _fetching_for(run, ranks, use) for value in recording.values("files")]
    sizes = [size for value in values if isinstance(value, dict) for size in value.get("bytes", ())]
    return float(median(sizes)) if sizes else None


def _fetching_for(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse) -> Iterable[Recording]:
    """The loader's workers; without any, the training processes themselves, if they feed no other loader."""
    if use.workers:
        workers = (recording for recording in run.recordings if recording.facts.get("role") == "worker")
        return [recording for recording in workers if loader_of(recording, ranks) == use.number]
    return [rank.recording for rank in ranks]


# Reads what was noted of batches: the types that would hold what is copied, and how much of them is padding.


def narrow_copies(ranks: Sequence[Rank]) -> tuple[NarrowCopy, ...]:
    """The lines at which a narrower type would save bytes, by file and line."""
    looked: Counter[Location] = Counter()
    saved: dict[Location, Counter[tuple[str, str]]] = defaultdict(Counter)
    for rank in ranks:
        values = rank.recording.values("site")
        places = {value["id"]: value for value in values if isinstance(value, dict) and "id" in value}
        # Running totals: the last note on a site counts.
        notes = {value.get("site"): value for value in rank.recording.values("narrow") if isinstance(value, dict)}
        for site, note in notes.items():
            if site not in places:
                continue
            where = Location(str(places[site].get("file", "")), int(places[site].get("line") or 0))
            looked[where] += int(note["bytes"])
            for kind in note["kinds"]:
                part = 1 - kind["narrow_itemsize"] / kind["itemsize"]
                saved[where][kind["dtype"], kind["narrow"]] += round(part * kind["bytes"])
    found = []
    for where, by_type in saved.items():
        total = sum(by_type.values())
        if total > 0 and looked[where] > 0:
            (dtype, narrow), _ = by_type.most_common(1)[0]
            found.append(NarrowCopy(where, dtype, narrow, total / looked[where]))
    return tuple(sorted(found, key=lambda narrow_copy: (narrow_copy.location.file, narrow_copy.location.line)))


def own_stream_copies(ranks: Sequence[Rank]) -> frozenset[Location]:
    """The lines that copy on a stream of their own, beside the kernels."""
    found = set()
    for rank in ranks:
        values = rank.recording.values("site")
        places = {value["id"]: value for value in values if isinstance(value, dict) and "id" in value}
        for note in rank.recording.values("own_stream"):
            place = places.get(note.get("site")) if isinstance(note, dict) else None
            if place is not None:
                found.add(Location(str(place.get("file", "")), int(place.get("line") or 0)))
    return frozenset(found)


def bytes_from_workers(recording: Recording, same: Mapping[int, int]) -> dict[int, int]:
    """Of a batch, by the number of its loader; only those that torch's own workers make."""
    notes = [note for note in recording.values("batch") if isinstance(note, dict)]
    return {same.get(note["loader"], note["loader"]): int(note["bytes"]) for note in notes}


def padding(ranks: Sequence[Rank], use: LoaderUse | None) -> Padding | None:
    """Of the training loader's batches; None where none of them was seen to hold sequences."""
    if use is None:
        return None
    notes = []
    for rank in ranks:
        same = same_loaders(rank.recording)
        for note in rank.recording.values("padding"):
            if isinstance(note, dict) and same.get(note["loader"], note["loader"]) == use.number:
                notes.append(note)
    if not notes:
        return None
    places = sum(note["length"] * len(note["lengths"]) for note in notes)
    lengths = sorted(length for note in notes for length in note["lengths"])
    trimmed = sum(max(note["lengths"]) * len(note["lengths"]) for note in notes)
    in_order = _sorted_places(
        lengths, (use.settings.get("dataset_len") or math.inf) / max(note["rows"] for note in notes)
    )
    text = sum(lengths)
    return Padding(
        batches=len(notes),
        rows=len(lengths),
        length=places / len(lengths),
        share=1 - text / places,
        # What is saved leaves fewer places, so that the padding that stays is a larger part of them.
        share_if_trimmed=1 - text / trimmed,
        share_if_sorted=1 - text / min(in_order, trimmed),
        kind=_kind(notes),
        computed_share=sum(bool(note["computed"]) for note in notes) / len(notes),
    )


def _sorted_places(lengths: Sequence[int], batches: float) -> float:
    """Places in as many rows if batches were cut from sorted chunks: each is as long as the longest in its part."""
    parts = max(1, round(min(batches, _CHUNK)))
    longest = np.quantile(np.asarray(lengths, np.float64), np.arange(1, parts + 1) / parts)
    return float(longest.mean()) * len(lengths)


def _kind(notes: Sequence[dict[str, Any]]) -> Message:
    kind, value = Counter((note["kind"], note["value"]) for note in notes).most_common(1)[0][0]
    return message("padding.masked") if kind == "mask" else message("padding.value", value=value)
