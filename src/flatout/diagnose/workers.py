"""What was seen inside the processes that fetch for a loader: what their time went to, and what they keep."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from flatout.diagnose.loaders import loader_of, same_loaders
from flatout.diagnose.ranks import Rank, call_sites_of, told
from flatout.diagnose.sites import Place, line_totals
from flatout.records.evidence import CacheUse, CarriedMemory, LoaderUse, NarrowCopy, Padding
from flatout.records.ledger import WAITING, Nature
from flatout.records.message import Message, message
from flatout.records.report import (
    STAGES,
    WORKER_PARTS,
    LineCost,
    Location,
    WorkerLedger,
    WorkerPart,
    WorkerUse,
)
from flatout.store.recording import Recording
from flatout.store.run import StoredRun

WORKER = "worker"
# Stages in which samples and batches are made.
_AT_WORK = (STAGES.index("samples"), STAGES.index("collate"))
_MOST_LINES = 100
# Batches that are sorted together, usually: enough to be even, few enough to stay random.
_CHUNK = 50


def ledger_of_workers(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse | None) -> WorkerLedger | None:
    """What the time of the training loader's workers goes to: by what they do, and what for; None where nothing tells.

    Exact are, from the meter in each worker, the time for samples, for collating and between batches, and from the
    kernel the time on a processor and ready for one. Looks of the line sampler in one of the workers divide the rest:
    the time between batches by stage, and the time at work by nature.
    """
    if use is None or not use.workers:
        return None
    recordings = list(_fetching_for(run, ranks, use))
    looks = _look_totals([lines for recording in recordings if (lines := run.lines_of(recording)) is not None])
    counted = [worker for recording in recordings if (worker := _count(recording, ranks)) is not None]
    wall_s = sum(worker.wall_s for worker in counted)
    if not wall_s:
        return None
    uses = [WorkerUse(worker.worker, worker.pid, worker.wall_s, _parts(worker, looks)) for worker in counted]
    parts: dict[str, float] = {
        part: sum(each.parts[part] * each.wall_s for each in uses) / wall_s for part in WORKER_PARTS
    }
    known = [worker for worker in counted if worker.run_s is not None and worker.work_s > 0]
    work_s = sum(worker.work_s for worker in known)
    delay_s = sum(min(worker.delay_s or 0.0, worker.work_s) for worker in known)
    wanted_s = sum((worker.run_s or 0.0) + (worker.delay_s or 0.0) for worker in known)
    return WorkerLedger(
        loader=use.number,
        wall_s=wall_s,
        parts=parts,
        natures=_natures(looks, delay_s / work_s if work_s else 0.0),
        computing=min(1.0, wanted_s / work_s) if work_s else None,
        workers=tuple(sorted(uses, key=lambda each: (each.worker, each.pid or 0))),
    )


def worker_lines(run: StoredRun, ranks: Sequence[Rank], use: LoaderUse | None) -> tuple[LineCost, ...]:
    """Lines by their share of a worker's time at work, and in milliseconds of a sample."""
    if use is None or not use.workers or use.sample_ms is None:
        return ()
    seconds: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    looks = 0.0
    for recording in _fetching_for(run, ranks, use):
        lines = run.lines_of(recording)
        for (place, phase, state), (weight, count) in (line_totals(lines) if lines is not None else {}).items():
            # In a worker's recording these numbers are of its stages.
            if place is not None and lines is not None and lines.phases.index(phase) in _AT_WORK:
                seconds[place][state.nature] += weight
                looks += count
    total = sum(sum(natures.values()) for natures in seconds.values())
    if looks < FEWEST_LOOKS or not total:
        return ()
    costs = [_line_cost(place, natures, total, use.sample_ms) for place, natures in seconds.items()]
    costs.sort(key=lambda cost: (-cost.share, cost.location.file, cost.location.line))
    return tuple(costs[:_MOST_LINES])


def _line_cost(place: Place, natures: Mapping[str, float], total: float, sample_ms: float) -> LineCost:
    (file, line, function), own = place, sum(natures.values())
    return LineCost(
        Location(file, line),
        function,
        WORKER,
        own / total,
        sample_ms * own / total,
        natures={nature: weight / own for nature, weight in natures.items() if nature != "unknown"},
    )


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
    last = {(v["name"], v.get("dataset")): v for v in told(recording, "cache")}
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
    hits, misses = _sum(values, "hits"), _sum(values, "misses")
    if kind == "dict":
        seen, new = _sum(values, "seen_samples"), _sum(values, "new_keys")
        first = [value["first"] for value in values if value["first"]]
        # The first samples find nothing, so they put in what they ask for.
        asked = seen * sum(keys for keys, _ in first) / max(1, sum(count for _, count in first))
        evicts = _sum(values, "thrown_out") > 0
    else:
        seen, new, asked = _sum(values, "samples"), misses, hits + misses
        evicts = capacity is not None and new > _sum(values, "entries")
    if not seen or not asked:
        return None
    hit_rate = 1.0 - new / asked
    if kind == "dict" and all(value.get("hits") is not None for value in values):
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
    values = (value for recording in _fetching_for(run, ranks, use) for value in told(recording, "files"))
    sizes = [size for value in values for size in value.get("bytes", ())]
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
        places = call_sites_of(rank.recording)
        # Running totals: the last note on a site counts.
        for site, note in {note.get("site"): note for note in told(rank.recording, "narrow")}.items():
            if site not in places:
                continue
            where, *_ = places[site]
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
    return frozenset(
        places[note["site"]][0]
        for rank in ranks
        for places in [call_sites_of(rank.recording)]
        for note in told(rank.recording, "own_stream")
        if note.get("site") in places
    )


def bytes_from_workers(recording: Recording, same: Mapping[int, int]) -> dict[int, int]:
    """Of a batch, by the number of its loader; only those that torch's own workers make."""
    return {same.get(note["loader"], note["loader"]): int(note["bytes"]) for note in told(recording, "batch")}


# Fewer batches may all be such with which the dataset's own memory is shared, once.
_FEWEST_WEIGHED = 3


def carried_by_workers(run: StoredRun, ranks: Sequence[Rank]) -> dict[int, CarriedMemory]:
    """The memory behind a usual batch: the median of those that were looked at, by the number of their loader."""
    notes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for recording in run.recordings:
        weighed = told(recording, "carried") if recording.facts.get("role") == "worker" else []
        number = loader_of(recording, ranks) if weighed else None
        if number is not None:
            notes[number] += weighed
    return {number: _carried(weighed) for number, weighed in notes.items() if len(weighed) >= _FEWEST_WEIGHED}


def _carried(notes: Sequence[Mapping[str, Any]]) -> CarriedMemory:
    # Each stands for the batches since the one before it: looks get rarer.
    by_excess = sorted(notes, key=lambda note: note["carried"] - note["shown"])
    batches = np.cumsum([note["batches"] for note in by_excess])
    usual = by_excess[int(np.searchsorted(batches, 0.5 * batches[-1]))]
    places = Counter((str(at[0]), int(at[1])) for note in notes if (at := note.get("at")))
    place = Location(*places.most_common(1)[0][0]) if places else None
    return CarriedMemory(int(usual["shown"]), int(usual["carried"]), place)


def padding(ranks: Sequence[Rank], use: LoaderUse | None) -> Padding | None:
    """Of the training loader's batches; None where none of them was seen to hold sequences."""
    if use is None:
        return None
    notes: list[dict[str, Any]] = []
    for rank in ranks:
        same = same_loaders(rank.recording)
        notes += [
            note for note in told(rank.recording, "padding") if same.get(note["loader"], note["loader"]) == use.number
        ]
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
    if kind == "mask":
        return message("padding.masked")
    if kind == "lengths":
        return message("padding.told")
    return message("padding.frames" if kind == "features" else "padding.value", value=value)


# Fewer looks than this say nothing about where the time goes.
FEWEST_LOOKS = 10
# Collating that takes less of a worker's time is not what the meter calls so: flatout's own workers collate outside of
# what it measures.
_NO_COLLATING = 0.005
# Of the measured time, the part that has to be within the steady steps to tell of them alone.
_ENOUGH = 0.25


@dataclass(frozen=True, slots=True)
class _Looks:
    """Seconds by stage, and at work on samples and batches by nature; how many looks there were."""

    stages: Mapping[WorkerPart, float]
    natures: Mapping[Nature, float]
    count: float = 0.0

    @property
    def tells_stages(self) -> bool:
        """Older recordings have only looks at work."""
        return self.count >= FEWEST_LOOKS and any(stage not in ("samples", "collate") for stage in self.stages)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Seconds of one worker. `run_s` and `delay_s` are None where the kernel does not count."""

    worker: int
    pid: int | None
    wall_s: float
    samples_s: float
    collate_s: float
    run_s: float | None
    delay_s: float | None

    @property
    def work_s(self) -> float:
        return self.samples_s + self.collate_s


def _look_totals(lines: Sequence[Recording]) -> _Looks:
    stages: dict[WorkerPart, float] = defaultdict(float)
    natures: dict[Nature, float] = defaultdict(float)
    count = 0.0
    for recording in lines:
        for (_, phase, state), (seconds, looks) in line_totals(recording).items():
            stage = STAGES[min(recording.phases.index(phase), len(STAGES) - 1)]
            stages[stage] += seconds
            count += looks
            if stage in ("samples", "collate"):
                natures[state.nature] += seconds
    return _Looks(stages, natures, count)


def _count(recording: Recording, ranks: Sequence[Rank]) -> _Counted | None:
    """What the meter of one worker measured within the steady steps, or in all where that is too little."""
    names = ("worker", "start_ns", "end_ns", "fetch_ns", "collate_ns", "run_ns", "delay_ns")
    column = {name: recording.column("fetch", name).astype(np.float64) for name in names}
    wall = np.maximum(column["end_ns"] - column["start_ns"], 0.0)
    steady = [rank.steady for rank in ranks if len(rank.steady)]
    if not len(wall) or not steady or not wall.sum():
        return None
    middle = 0.5 * (column["end_ns"] + column["start_ns"])
    inside = middle >= min(float(steps.start_ns[0]) for steps in steady)
    if wall[inside].sum() < _ENOUGH * wall.sum():
        inside = np.ones(len(wall), bool)
    run, delay = column["run_ns"][inside], column["delay_ns"][inside]
    is_counted = bool(np.isfinite(run).all() and (run >= 0).all() and run.sum() > 0)
    pid = recording.facts.get("pid")
    return _Counted(
        worker=int(column["worker"][0]),
        pid=pid if isinstance(pid, int) else None,
        wall_s=1e-9 * float(wall[inside].sum()),
        samples_s=1e-9 * float(column["fetch_ns"][inside].sum()),
        collate_s=1e-9 * float(column["collate_ns"][inside].sum()),
        run_s=1e-9 * float(run.sum()) if is_counted else None,
        delay_s=1e-9 * float(delay.sum()) if is_counted else None,
    )


def _parts(worker: _Counted, looks: _Looks) -> dict[str, float]:
    """Shares of its time; what is between batches goes by the looks, where they tell."""
    seconds: dict[WorkerPart, float] = dict.fromkeys(WORKER_PARTS, 0.0)
    seconds["samples"], seconds["collate"] = worker.samples_s, worker.collate_s
    between_s = max(0.0, worker.wall_s - worker.work_s)
    of_between: list[WorkerPart] = ["handover", "order", "room"]
    if worker.collate_s < _NO_COLLATING * worker.wall_s:
        of_between.append("collate")
    seen_s = sum(looks.stages.get(stage, 0.0) for stage in of_between)
    for stage in of_between if looks.tells_stages and seen_s > 0 else ():
        seconds[stage] += between_s * looks.stages.get(stage, 0.0) / seen_s
    # A thread that is ready to run is mostly so in the midst of its work.
    work_s = seconds["samples"] + seconds["collate"]
    delay_s = min(worker.delay_s or 0.0, work_s)
    for part in ("samples", "collate") if work_s > 0 else ():
        seconds[part] *= 1.0 - delay_s / work_s
    seconds["not running"] = delay_s
    total_s = max(worker.wall_s, sum(seconds.values()))
    seconds["not measured"] = total_s - sum(seconds.values())
    return {part: value / total_s for part, value in seconds.items()}


def _natures(looks: _Looks, delay: float) -> dict[str, float]:
    """Shares by nature. A look cannot tell a thread that runs from one that is ready to: neither waits."""
    total = sum(looks.natures.values())
    if looks.count < FEWEST_LOOKS or not total or set(looks.natures) == {"unknown"}:
        return {}
    shares = {nature: seconds / total for nature, seconds in looks.natures.items()}
    running = sum(share for nature, share in shares.items() if nature not in WAITING)
    taken = min(delay, running)
    kept = 1.0 - taken / running if running else 1.0
    found: dict[str, float] = {
        nature: share if nature in WAITING else share * kept for nature, share in shares.items() if share > 0
    }
    return found | ({"not running": taken} if taken > 0 else {})
