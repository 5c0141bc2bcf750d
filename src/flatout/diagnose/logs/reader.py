"""From a log file to its readings: which lines tell the pace, and what else the log says about the run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from flatout.diagnose.logs.readings import (
    Pattern,
    Reading,
    bar,
    is_checkpoint,
    is_evaluation,
    is_preparation,
    line_reading,
    mapping,
    mapping_reading,
    stamp,
)
from flatout.errors import FlatoutError

# By how a log names the samples of a step; the first kind that is there counts, the surest first.
_BATCH = (
    re.compile(r"\b(?P<name>Total train batch size[^=:]*?)\s*[=:]\s*(?P<value>\d+)"),
    re.compile(r"\b(?P<name>samples_per_gpu|per_device_train_batch_size|dataloader_batch_size)\W{1,4}(?P<value>\d+)"),
    re.compile(r"(?<![\w.])(?P<name>(?:train_)?batch_size|BATCH_SIZE|batch-size)\W{1,4}(?P<value>\d+)"),
)
_SIGNS = (
    ("mmcv", re.compile(r"\b(?:Iter|Epoch)(?:\(train\))?\s*\[.*\b(?:data_)?time: ")),
    ("KAIR", re.compile(r"<epoch:\s*\d+, iter:")),
    ("Lightning", re.compile(r"^Epoch \d+(?:/-?\d+)?\b.*\b(?:v_num|it/s)")),
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78cM(][AB0]?)")
_ONE_READ = 1 << 20
# Longer than any line that somebody printed for people to read; what follows is cut off.
_LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something other than training: where, what, and how long it says it took."""

    at: int
    kind: str
    took_s: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """The samples of a step as the log tells them somewhere."""

    size: float
    words: str


@dataclass(slots=True)
class Log:
    """A log as read: the readings of its training, in order."""

    file: str
    format: str
    lines: int
    readings: list[Reading]
    events: list[Event] = field(default_factory=list)
    batch: Told | None = None


@dataclass(slots=True)
class _Gathered:
    sources: dict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    events: list[Event] = field(default_factory=list)
    batches: list[dict[float, Told]] = field(default_factory=lambda: [{} for _ in _BATCH])
    formats: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    # How many texts were read: a line may hold many.
    at: int = 0


def read_log(path: Path, pattern: Pattern | None = None) -> Log:
    """The readings of the training in the file. Raises FlatoutError where there are none."""
    found = _Gathered()
    for number, text in log_lines(path):
        found.lines = number
        found.at += 1
        _note_batch(found, number, text)
        if pattern is None:
            _add(found, number, text)
        elif (reading := pattern.read(number, text)) is not None:
            _keep(found, reading, text)
        else:
            _note_event(found, text)
    if not found.lines:
        raise FlatoutError(f"{str(path)!r} is empty: give the log that the training printed")
    source, readings = _training(found)
    if not any(reading.tells_pace for reading in readings):
        raise FlatoutError(_nothing(path, found.lines, pattern))
    log = Log(str(path), _format(found, source), found.lines, readings, found.events, _batch(found))
    return _with_totals(log, found)


def _nothing(path: Path, lines: int, pattern: Pattern | None) -> str:
    if pattern is not None:
        return f"{str(path)!r}: --pattern matches none of its {lines:,} lines"
    return (
        f"{str(path)!r}: none of its {lines:,} lines tells a pace; name the figures yourself, such as "
        r"--pattern 'step (?P<step>\d+).*?(?P<its>[\d.]+) it/s'"
    )


def _add(found: _Gathered, number: int, text: str) -> None:
    drawn = bar(number, text)
    if drawn is not None:
        reading, desc = drawn
        if is_evaluation(desc):
            found.events.append(Event(found.at, "evaluation", reading.elapsed_s))
        elif not is_preparation(desc):
            _keep(found, reading, text)
        return
    when = stamp(text)
    stamp_s, said = (when[0], text[when[1] :]) if when else (None, text)
    if is_evaluation(said) or is_checkpoint(said):
        _note_event(found, text)
        return
    values = mapping(said)
    if values is not None:
        if any(name.startswith(("eval_", "val_", "test_")) for name in values) or values.get("mode") == "val":
            found.events.append(Event(found.at, "evaluation"))
            return
        read = mapping_reading(number, values, stamp_s)
    else:
        read = line_reading(number, said, stamp_s)
    if read is not None:
        _keep(found, read, text)


def _keep(found: _Gathered, reading: Reading, text: str) -> None:
    found.sources[reading.source].append(replace(reading, at=found.at))
    if reading.source not in found.formats:
        for name, sign in _SIGNS:
            if sign.search(text):
                found.formats[reading.source] = name


def _note_event(found: _Gathered, text: str) -> None:
    if is_evaluation(text):
        found.events.append(Event(found.at, "evaluation"))
    elif is_checkpoint(text):
        found.events.append(Event(found.at, "checkpoint"))


def _note_batch(found: _Gathered, number: int, text: str) -> None:
    if "atch" not in text and "ATCH" not in text and "samples_per_gpu" not in text:
        return
    for kind, pattern in zip(found.batches, _BATCH, strict=True):
        for match in pattern.finditer(text):
            size = float(match["value"])
            if size > 0:
                kind.setdefault(size, Told(size, f"line {number}: {match['name'].strip()} = {match['value']}"))


def _batch(found: _Gathered) -> Told | None:
    """Two different sizes of the same kind (training and validation, say) leave it open."""
    for kind in found.batches:
        if kind:
            return next(iter(kind.values())) if len(kind) == 1 else None
    return None


def _training(found: _Gathered) -> tuple[str, list[Reading]]:
    """The source that tells the pace most often; the others are about something else, or about the same."""

    def weight(source: str) -> int:
        return sum(reading.tells_pace for reading in found.sources[source])

    best = max(found.sources, key=weight, default="")
    return best, found.sources.get(best, [])


def _format(found: _Gathered, source: str) -> str:
    if source in found.formats:
        return found.formats[source]
    names = {"lines": "key=value", "dicts": "JSON or dict lines", "pattern": "--pattern"}
    return names.get(source, "tqdm")


def _with_totals(log: Log, found: _Gathered) -> Log:
    """What Hugging Face says at the end: samples and steps a second over all, so the samples of a step."""
    if log.batch is None:
        for reading in found.sources.get("dicts", []):
            if reading.it_per_s and reading.samples_per_s:
                log.batch = Told(
                    round(reading.samples_per_s / reading.it_per_s),
                    f"line {reading.line}: {reading.samples_per_s:g} samples/s over {reading.it_per_s:g} steps/s",
                )
    return log


def in_order(readings: Iterable[Reading]) -> list[Reading]:
    """Without the repeats of a bar that was only redrawn: of the same step in a row, the first with a rate."""
    kept: list[Reading] = []
    for reading in readings:
        last = kept[-1] if kept else None
        is_same = last is not None and reading.step is not None and last.step == reading.step
        if last is not None and is_same and (reading.total == last.total or not reading.has_rate):
            if not last.has_rate and reading.has_rate:
                kept[-1] = replace(reading, elapsed_s=last.elapsed_s, stamp_s=last.stamp_s)
            continue
        kept.append(reading)
    return kept


# The lines of a log file as a terminal would have shown them.


def log_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text. A progress bar that overwrote itself gives several texts with the same number."""
    try:
        with path.open("rb") as file:
            for number, text in _split(file, path):
                clean = _ESCAPES.sub("", text).strip()
                if clean:
                    yield number, clean
    except OSError as error:
        raise FlatoutError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def _split(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
    while chunk := file.read(_ONE_READ):
        if b"\0" in chunk:
            raise FlatoutError(f"{str(path)!r} is no text: give the log that the training printed")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield from _pieces(number, line)
            number += 1
        if len(rest) > _ONE_READ:
            # A bar that never ends its line: hand out what was overwritten, keep what is still open.
            head, _, rest = rest.rpartition(b"\r")
            yield from _pieces(number, head)
            rest = rest[-_LONGEST:]
    yield from _pieces(number, rest)


def _pieces(number: int, line: bytes) -> Iterator[tuple[int, str]]:
    for piece in line.split(b"\r"):
        if piece:
            yield number, piece[:_LONGEST].decode(errors="replace")
