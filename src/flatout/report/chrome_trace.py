"""A trace in Chrome's JSON format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Times are microseconds. A complete event (X) that lies within another of the same thread is drawn as its part; counters
(C) belong to a process; metadata (M) names processes and threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flatout.records.timeline import Counter, Slice, Trace, TracedProcess, Track

_UNSEEN_NS = 1000
# A viewer's own colour names: waiting looks like waiting everywhere.
_COLOURS = {
    "data": "terrible",
    "starved": "terrible",
    "h2d": "yellow",
    "forward": "good",
    "backward": "rail_response",
    "optimizer": "rail_animation",
    "sync": "bad",
    "eval": "rail_load",
    "checkpoint": "olive",
    "logging": "olive",
    "gc": "grey",
    "other": "grey",
}


def to_chrome(trace: Trace, version: str) -> str:
    """The whole trace as one JSON object, an event a line."""
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "flatout": version,
            "run": trace.run,
            "steps": ", ".join(f"{first} to {last}" for first, last in trace.steps),
            "notes": "; ".join(trace.notes),
        },
    }
    events = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in _events(trace))
    return json.dumps(head)[:-1] + f', "traceEvents": [\n{events}\n]}}\n'


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    # Negative times are legal, but viewers begin at the first event: nothing is gained by them.
    shift_us = -min((moment for process in trace.processes for moment in _moments(process)), default=0.0)
    taken: set[int] = set()
    for order, process in enumerate(trace.processes):
        # Two hosts may use one number for two processes.
        pid = process.pid if process.pid not in taken else max(taken) + 1
        taken.add(pid)
        yield _metadata("process_name", pid, 0, {"name": process.name})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": order})
        lanes = [
            (track, lane, at) for track in process.tracks for at, lane in enumerate(_lanes(track, shift_us), start=1)
        ]
        for number, (track, lane, at) in enumerate(lanes, start=1):
            yield _metadata("thread_name", pid, number, {"name": track.name if at == 1 else f"{track.name} ({at})"})
            yield _metadata("thread_sort_index", pid, number, {"sort_index": number})
            for drawn in lane:
                yield from _of_slice(drawn, track.kind, pid, number, shift_us)
        for counter in process.counters:
            yield from _of_counter(counter, pid, shift_us)


def _moments(process: TracedProcess) -> Iterator[float]:
    yield from (slice_.start_us for track in process.tracks for slice_ in track.slices)
    yield from (counter.t_us[0] for counter in process.counters if counter.t_us)


def _metadata(name: str, pid: int, tid: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": values}


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A slice in whole nanoseconds, on which sums are exact."""

    slice: Slice
    start_ns: int
    end_ns: int


def _lanes(track: Track, shift_us: float) -> list[list[_Drawn]]:
    """The slices of a track in order, on as many lines as it takes: viewers draw none that overlaps another in part.

    Some do where a script pauses in two threads at once.
    """
    slices = sorted(
        (_in_ns(slice_, shift_us) for slice_ in track.slices), key=lambda drawn: (drawn.start_ns, -drawn.end_ns)
    )
    lanes: list[list[_Drawn]] = [[]]
    open_until: list[list[int]] = [[]]
    # Those that have parts of their own lie beside each other only.
    may_nest = not any(slice_.parts for slice_ in track.slices)
    for number, drawn in enumerate(slices):
        # Two that follow each other by two clocks may overlap by less than anyone sees.
        if number + 1 < len(slices) and 0 < drawn.end_ns - slices[number + 1].start_ns <= _UNSEEN_NS:
            drawn = replace(drawn, end_ns=max(drawn.start_ns, slices[number + 1].start_ns))
        lane = next((lane for lane, ends in enumerate(open_until) if _fits(drawn, ends, may_nest)), len(lanes))
        if lane == len(lanes):
            lanes.append([])
            open_until.append([])
        lanes[lane].append(drawn)
        open_until[lane].append(drawn.end_ns)
    return lanes


def _fits(drawn: _Drawn, open_until: list[int], may_nest: bool) -> bool:
    """Within what is open, or after it. What has ended by then is forgotten."""
    while open_until and open_until[-1] <= drawn.start_ns:
        open_until.pop()
    return not open_until or (may_nest and drawn.end_ns <= open_until[-1])


def _in_ns(slice_: Slice, shift_us: float) -> _Drawn:
    # Rounded at both ends: a part must not reach beyond its whole, nor a slice into the next.
    start_ns, end_ns = (
        round((moment + shift_us) * 1e3) for moment in (slice_.start_us, slice_.start_us + slice_.length_us)
    )
    return _Drawn(slice_, start_ns, end_ns)


def _of_slice(drawn: _Drawn, kind: str, pid: int, tid: int, shift_us: float) -> Iterator[dict[str, Any]]:
    slice_ = drawn.slice
    event: dict[str, Any] = {
        "ph": "X",
        "name": slice_.name,
        "cat": kind,
        "pid": pid,
        "tid": tid,
        "ts": drawn.start_ns / 1e3,
        "dur": (drawn.end_ns - drawn.start_ns) / 1e3,
    }
    if slice_.name in _COLOURS:
        event["cname"] = _COLOURS[slice_.name]
    if slice_.facts:
        event["args"] = slice_.facts
    yield event
    for part in slice_.parts:
        inner = _in_ns(part, shift_us)
        if inner.start_ns < drawn.end_ns:
            inner = replace(inner, end_ns=min(inner.end_ns, drawn.end_ns))
            yield from _of_slice(inner, kind, pid, tid, shift_us)


def _of_counter(counter: Counter, pid: int, shift_us: float) -> Iterator[dict[str, Any]]:
    for t_us, value in zip(counter.t_us, counter.values, strict=True):
        at_us = round(t_us + shift_us, 3)
        yield {
            "ph": "C",
            "name": counter.name,
            "pid": pid,
            "tid": 0,
            "ts": at_us,
            "args": {"value": float(f"{value:.6g}")},
        }
