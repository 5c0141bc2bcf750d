"""The rules of the Trace Event format that a viewer relies on, as a check: a trace that breaks one is drawn wrongly.

Of the format's description (Chrome, 2016) and of what Perfetto says about it: complete events of one thread lie within
or beside each other and never overlap in part; times are microseconds; counters hold numbers; metadata gives names.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

_KEYS = {
    "X": ({"ph", "name", "pid", "tid", "ts", "dur"}, {"cat", "args", "cname"}),
    "C": ({"ph", "name", "pid", "ts", "args"}, {"tid", "cat"}),
    "M": ({"ph", "name", "pid", "args"}, {"tid", "ts"}),
}
_METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
# The names that viewers have a colour for; others are an error in the older one.
_COLOURS = {
    *("good", "bad", "terrible", "black", "grey", "white", "yellow", "olive", "generic_work", "startup"),
    *(f"rail_{name}" for name in ("response", "animation", "idle", "load")),
    *(f"thread_state_{name}" for name in ("uninterruptible", "iowait", "running", "runnable", "sleeping", "unknown")),
}
_MOST_US = 2**53 / 1e3

Event = dict[str, Any]


def violations(text: str) -> list[str]:
    """What is wrong with a trace, a sentence each; nothing if it keeps to the format."""
    value = json.loads(text, parse_constant=lambda word: f"not JSON: {word}")
    if not isinstance(value, dict) or not isinstance(value.get("traceEvents"), list):
        return ["the file is no object with a list of traceEvents"]
    found = [] if value.get("displayTimeUnit") in ("ms", "ns") else ["displayTimeUnit is neither ms nor ns"]
    events = value["traceEvents"]
    for number, event in enumerate(events):
        found += [f"event {number}: {words}" for words in _of_one(event)]
    if found:
        return found
    return [*_of_names(events), *_of_threads(events), *_of_counters(events)]


def _of_one(event: Event) -> Iterator[str]:
    phase = event.get("ph")
    if phase not in _KEYS:
        yield f"unknown phase {phase!r}"
        return
    needed, allowed = _KEYS[phase]
    if missing := needed - set(event):
        yield f"{phase} without {sorted(missing)}"
    if more := set(event) - needed - allowed:
        yield f"{phase} with {sorted(more)}"
    for name in ("pid", "tid"):
        if not isinstance(event.get(name, 0), int) or event.get(name, 0) < 0:
            yield f"{name} is {event[name]!r}"
    for name in ("ts", "dur"):
        if not _is_time(event.get(name, 0)):
            yield f"{name} is {event[name]!r}"
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield f"name is {event.get('name')!r}"
    if not isinstance(event.get("args", {}), dict):
        yield f"args is {event['args']!r}"
    elif phase == "C" and not (event["args"] and all(_is_number(one) for one in event["args"].values())):
        yield f"a counter of {event['args']!r}"
    if event.get("cname", "good") not in _COLOURS:
        yield f"unknown colour {event['cname']!r}"
    if phase == "M":
        yield from _of_metadata(event)


def _of_metadata(event: Event) -> Iterator[str]:
    if event["name"] not in _METADATA:
        yield f"unknown metadata {event['name']!r}"
        return
    key, kind = _METADATA[event["name"]]
    if set(event["args"]) != {key} or not isinstance(event["args"][key], kind):
        yield f"{event['name']} with {event['args']!r}"


def _of_names(events: list[Event]) -> Iterator[str]:
    """Each process and thread that is drawn has one name, given before it is used."""
    named: set[tuple[Any, ...]] = set()
    for number, event in enumerate(events):
        key = (event["name"], event["pid"], event.get("tid", 0))
        if event["ph"] == "M":
            if key in named:
                yield f"event {number}: {key} is said twice"
            named.add(key)
        elif ("process_name", event["pid"], 0) not in named:
            yield f"event {number}: process {event['pid']} has no name yet"
        elif event["ph"] == "X" and ("thread_name", event["pid"], event["tid"]) not in named:
            yield f"event {number}: thread {event['tid']} of {event['pid']} has no name yet"


def _of_threads(events: list[Event]) -> Iterator[str]:
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for thread, mine in threads.items():
        open_until: list[int] = []
        last = (-1, 0)
        for event in mine:
            start, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
            # Of those that begin together, the whole comes before its parts.
            if (start, -end) < last:
                yield f"thread {thread}: {event['name']!r} at {event['ts']} is not in order"
            last = (start, -end)
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and end > open_until[-1]:
                yield f"thread {thread}: {event['name']!r} at {event['ts']} overlaps another in part"
            open_until.append(end)


def _of_counters(events: list[Event]) -> Iterator[str]:
    last: dict[tuple[int, str], float] = {}
    series: dict[tuple[int, str], set[str]] = {}
    for event in events:
        if event["ph"] == "C":
            key = (event["pid"], event["name"])
            if event["ts"] <= last.get(key, -1.0):
                yield f"counter {key} at {event['ts']} is not in order"
            if set(event["args"]) != series.setdefault(key, set(event["args"])):
                yield f"counter {key} changes what it counts"
            last[key] = event["ts"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(value: Any) -> bool:
    # Beyond this a nanosecond is lost in a double.
    return _is_number(value) and 0 <= value <= _MOST_US
