"""Reads what was noted of batches: the types that would hold what is copied, and how much of them is padding."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flatout.diagnose.loaders import same_loaders
from flatout.diagnose.ranks import Rank
from flatout.records.batches import NarrowCopy, Padding
from flatout.records.evidence import LoaderUse
from flatout.records.message import Message, message
from flatout.records.report import Location
from flatout.store.recording import Recording

# Batches that are sorted together, usually: enough to be even, few enough to stay random.
_CHUNK = 50


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
    return tuple(sorted(found, key=lambda one: (one.location.file, one.location.line)))


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
