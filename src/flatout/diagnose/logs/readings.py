"""One reading of a log: what a single line says about the pace."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from flatout.errors import FlatoutError

# Words by which a line says that it is not about training. A name such as `val_loss` is none of them.
_EVALUATION = re.compile(
    r"(?<![\w./-])(?:val|valid|validation|validating|eval|evaluation|evaluating|evaluate|test|testing|inference|"
    r"sanity|predicting)(?![\w./-]*[/\\.]\w)(?!\w)",
    re.IGNORECASE,
)
_TRAINING = re.compile(r"(?<![\w./-])(?:train|training)(?!\w)", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"\b(?:sav(?:e|ed|ing)\b.*\b(?:checkpoint|model|weights)|checkpoint\b.*\bsaved)", re.IGNORECASE
)
_PREPARATION = re.compile(
    r"\b(?:map|filter|flatten|tokeni[sz]\w*|download\w*|loading|fetching|generating|resolving|extracting|casting|"
    r"saving|upload\w*|caching|scanning|preprocess\w*|indexing)\b",
    re.IGNORECASE,
)
_OF_SAMPLES = "img imgs image images sample samples example examples ex seq seqs frame frames clip clips"
_OF_STEPS = "it its iter iters iteration iterations step steps batch batches"
SAMPLE_UNITS, STEP_UNITS = frozenset(_OF_SAMPLES.split()), frozenset(_OF_STEPS.split())
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<name>[A-Za-z][\w./@-]*(?: (?:time|loss|size|step))?)\s*(?:[=:]\s*|\s+)(?P<value>{_NUMBER})"
    rf"(?P<unit>\s?(?:ms|us|µs|s|sec)\b(?!/))?(?![\w:])"
)
_RATE = re.compile(rf"(?P<value>{_NUMBER})\s*(?P<unit>[A-Za-z]*)\s?/\s?(?P<per>s|sec|second)\b(?!\s*[=:])")
_PACE = re.compile(rf"(?P<value>{_NUMBER})\s*(?P<unit>ms|s|sec)\s?/\s?(?P<per>[A-Za-z]+)\b")
# KAIR writes thousands with a comma.
_INTEGER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_STEP = re.compile(
    r"\b(?:iter(?:ation)?s?|global[_ ]step|steps?|it)(?:\(train\))?\s*[:=#]?\s*[\[(]?\s*"
    rf"(?P<step>{_INTEGER})(?:\s*/\s*(?P<total>{_INTEGER}))?(?!\.?\d)",
    re.IGNORECASE,
)
_EPOCH_ITER = re.compile(r"\[\s*\d+\s*\]\s*\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\]")
# timm: "Train: 0 [  50/1251 (  4%)]"
_TIMM = re.compile(r"\bTrain(?:ing)?:?\s+\d+\s+\[\s*(?P<step>\d+)/(?P<total>\d+)")
# Names in lower case, every sign as "_" and "/" as "_per_", and what they mean.
_MEANINGS = {
    "it_per_s": "its it_per_s it_per_sec iter_per_s iters_per_s iters_per_sec iterations_per_s iterations_per_second "
    "step_per_s steps_per_s steps_per_sec steps_per_second batch_per_s batches_per_s batches_per_second",
    "samples_per_s": "sample_per_s samples_per_s samples_per_sec samples_per_second img_per_s imgs_per_s imgs_per_sec "
    "image_per_s images_per_s images_per_sec images_per_second ex_per_s examples_per_s examples_per_second",
    "time_s": "time step_time iter_time batch_time iteration_time time_per_step time_per_iter sec_per_step s_per_step "
    "sec_per_iter s_per_iter seconds_per_step step_s iter_s step_ms iter_ms time_ms dt",
    "data_s": "data data_time data_s data_ms data_wait data_wait_ms avg_data_time data_load_time load_time dataload "
    "dataload_time dataloading_time",
    "loss": "loss total_loss g_loss loss_g loss_step",
    "batch": "batch_size bs batchsize total_batch_size global_batch_size",
    "step": "step iter iteration global_step",
}
_UNITS = {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "s": 1.0, "sec": 1.0, "": 1.0}
_DATED = re.compile(
    r"(?<!\d)(?P<y>\d{4}|\d{2})[-/](?P<mo>\d{1,2})[-/](?P<d>\d{1,2})[ T,_-]+"
    r"(?P<h>\d{1,2}):(?P<mi>\d{2}):(?P<s>\d{2})(?P<f>[.,]\d{1,9})?"
)
# Detectron2: [01/28 14:05:09 d2.utils.events]: …
_NO_YEAR = re.compile(r"^\[?(?P<mo>\d{2})/(?P<d>\d{2})\s+(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?P<f>[.,]\d{1,9})?")
_TIME_ONLY = re.compile(r"^\[?(?P<h>\d{1,2}):(?P<mi>\d{2}):(?P<s>\d{2})(?P<f>[.,]\d{1,9})?(?=[\]\s,|-])")
# A stamp stands in front; a date further on is part of what the line says.
_WITHIN = 60
_ANY_YEAR = 2000  # a leap year, so that 29 February exists
_COUNT = r"(?P<n>\d+(?:\.\d+)?[kKMG]?)"
_TOTAL = r"(?P<total>\d+(?:\.\d+)?[kKMG]?)"
_BAR_RATE = r"(?P<rate>\?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?P<scale>[kKMG]?)\s*(?P<per>[A-Za-z ]*/\s?[A-Za-z]+)"
_TIME = r"(?:\d+ ?d(?:ays?)?,? ?)?[\d:]+"
# " 45%|████▌     | 450/1000 [00:48<00:59,  9.3it/s, loss=0.31]", also without a total: "450it [00:48,  9.3it/s]".
_TQDM = re.compile(
    rf"(?:\d+%\|[^|]*\|\s*{_COUNT}/{_TOTAL}|(?P<bare>\d+)[A-Za-z]+)\s*"
    rf"\[(?P<elapsed>{_TIME})(?:<(?:\?|{_TIME}))?,\s*{_BAR_RATE}(?P<rest>[^\]]*)\]?"
)
# "Epoch 0/9 ━━━━━━━━ 45/100 0:00:05 • 0:00:06 8.90it/s v_num: 0 loss: 0.5"
_RICH = re.compile(rf"[━╸╺╴]{{2,}}\s+{_COUNT}/{_TOTAL}\s+(?P<elapsed>{_TIME})\s+•\s+\S+\s+{_BAR_RATE}(?P<rest>.*)")
_DIGITS = r"\d+(?:\.\d+)?"
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_FIELDS = {
    "step": "step",
    "its": "it_per_s",
    "samples": "samples_per_s",
    "time": "time_s",
    "data_time": "data_s",
    "loss": "loss",
    "batch": "batch",
}
_RATES = {"its", "samples", "time"}


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one line, None where it has none. `time_s` and `data_s` are of one step."""

    line: int
    # Which lines belong together: the format, and for a bar its text in front.
    source: str
    step: float | None = None
    # Of the epoch or the bar, where the line says "50/7330".
    total: float | None = None
    it_per_s: float | None = None
    samples_per_s: float | None = None
    time_s: float | None = None
    data_s: float | None = None
    loss: float | None = None
    batch: float | None = None
    # Seconds of the time stamp, and seconds since the bar began.
    stamp_s: float | None = None
    elapsed_s: float | None = None
    # Its place in the log: a bar that overwrites itself has many readings in one line.
    at: int = 0

    @property
    def has_rate(self) -> bool:
        return any(value is not None for value in (self.it_per_s, self.samples_per_s, self.time_s))

    @property
    def tells_pace(self) -> bool:
        """Alone, or together with its neighbours."""
        return self.has_rate or (self.step is not None and (self.stamp_s is not None or self.elapsed_s is not None))


def is_evaluation(text: str) -> bool:
    return _EVALUATION.search(text) is not None and _TRAINING.search(text) is None


def is_checkpoint(text: str) -> bool:
    return _CHECKPOINT.search(text) is not None


def is_preparation(text: str) -> bool:
    """A bar of something that comes before training: its text in front says so."""
    return _PREPARATION.search(text) is not None


# Named figures in a line, however it joins name and number: `loss=0.5`, `time: 0.134`, `Data 0.002`, `9.3 it/s`.


_KEYS = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}


@lru_cache(maxsize=4096)  # a log has few names and many lines
def meaning(name: str) -> tuple[str, float] | None:
    """What a name means, and the factor from its unit to ours."""
    key = re.sub(r"[\W_]+", "_", name.lower().replace("/", "_per_")).strip("_")
    found = _KEYS.get(key) or _KEYS.get(key.removeprefix("train_").removeprefix("train_per_"))
    return None if found is None else (found, 1e-3 if key.endswith("_ms") else 1.0)


def pairs(text: str) -> dict[str, float]:
    """Every figure of the text whose name we know, by our name for it; the first of two counts."""
    found: dict[str, float] = {}
    for match in _RATE.finditer(text) if "/s" in text or "/ s" in text else ():
        unit = match["unit"].lower()
        if unit in STEP_UNITS:
            found.setdefault("it_per_s", float(match["value"]))
        elif unit in SAMPLE_UNITS or not unit:  # timm prints "817.10/s" and means samples
            found.setdefault("samples_per_s", float(match["value"]))
    for match in _PACE.finditer(text) if "s/" in text or "s /" in text else ():
        if match["per"].lower() in STEP_UNITS:
            found.setdefault("time_s", float(match["value"]) * _UNITS[match["unit"]])
    for match in _PAIR.finditer(text):
        meant = meaning(match["name"]) or meaning(match["name"].rpartition(" ")[2])
        if meant is not None:
            name, factor = meant
            unit = (match["unit"] or "").strip()
            found.setdefault(name, float(match["value"]) * (_UNITS[unit] if unit else factor))
    return found


def line_reading(number: int, text: str, stamp_s: float | None) -> Reading | None:
    """The reading of a plain line; None if it says nothing about the pace."""
    match = _EPOCH_ITER.search(text) or _TIMM.search(text) or _STEP.search(text)
    figures: dict[str, Any] = dict(pairs(text))
    step = _whole(match["step"]) if match else figures.get("step")
    if step is None and not {"it_per_s", "samples_per_s", "time_s"} & set(figures):
        return None
    if match is not None and not figures and stamp_s is None:
        return None
    total = _whole(match["total"]) if match and match["total"] else None
    figures.pop("step", None)
    return Reading(line=number, source="lines", step=step, total=total, stamp_s=stamp_s, **figures)


def _whole(text: str) -> float:
    return float(text.replace(",", ""))


def mapping(text: str) -> Mapping[str, Any] | None:
    """A line that is one dict: Hugging Face prints Python's, mmcv's `log.json` and many others hold JSON."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end <= begin or text[end + 1 :].strip():
        return None
    inner = text[begin : end + 1]
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(inner)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else None
    return None


def mapping_reading(number: int, values: Mapping[str, Any], stamp_s: float | None) -> Reading | None:
    figures: dict[str, Any] = {}
    for name, value in values.items():
        meant, number_value = meaning(name), _number(value)
        if meant is not None and number_value is not None:
            figures.setdefault(meant[0], number_value * meant[1])
    step = figures.pop("step", None)
    if step is None and not figures:
        return None
    return Reading(line=number, source="dicts", step=step, stamp_s=stamp_s, **figures)


def _number(value: Any) -> float | None:
    # Some print their figures as words.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


# When a line was printed, by the time stamp that logging puts in front of it.


def stamp(text: str) -> tuple[float, int] | None:
    """Seconds on some scale, the same for all lines of a file, and where the stamp ends; None without one."""
    head = text[:_WITHIN]
    match = _DATED.search(head) or _NO_YEAR.match(head) or _TIME_ONLY.match(head)
    if match is None:
        return None
    found = match.groupdict()
    year = int(found.get("y") or _ANY_YEAR)
    try:
        when = datetime(
            year if year >= 100 else 2000 + year,
            int(found.get("mo") or 1),
            int(found.get("d") or 1),
            int(found["h"]),
            int(found["mi"]),
            int(found["s"]),
        )
    except ValueError:
        return None
    fraction = float("0." + found["f"][1:]) if found["f"] else 0.0
    return (when - datetime(_ANY_YEAR, 1, 1)).total_seconds() + fraction, match.end()


def seconds(text: str) -> float | None:
    """A duration as progress bars write it: 05:12, 1:02:03, 2 days, 1:02:03 or 2d 01:02:03."""
    match = re.fullmatch(r"(?:(\d+)\s*d(?:ays?)?,?\s*)?(?:(\d+):)?(\d{1,2}):(\d{2})", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


# Progress bars: tqdm's, and Lightning's drawn by rich.


def bar(number: int, text: str) -> tuple[Reading, str] | None:
    """The reading of a bar and the text in front of it; None if the line has no bar, or one that counts bytes."""
    # Most lines of a log are none: no search costs less than the cheapest.
    match = _TQDM.search(text) if "[" in text and ("/s" in text or "s/" in text) else None
    match = match or (_RICH.search(text) if "━" in text else None)
    if match is None:
        return None
    found = match.groupdict()
    unit, _, per = found["per"].replace(" ", "").partition("/")
    if unit == "B" or per == "B":
        return None
    rate, unit = _rate(found["rate"], found["scale"], unit, per)
    is_samples = unit.lower() in SAMPLE_UNITS
    figures = pairs(found["rest"])
    count = found["n"] or found.get("bare")
    desc = text[: match.start()].strip(" :|\t━╸╺╴")
    reading = Reading(
        line=number,
        # Epochs of the same length are one bar after the other; a bar of another length is about something else.
        source=f"bar {re.sub(_DIGITS, '#', desc)} {found.get('total')}",
        # A bar that counts samples does not say how many steps they were.
        step=None if is_samples or count is None else _scaled(count),
        total=_scaled(found["total"]) if found.get("total") and not is_samples else None,
        it_per_s=None if is_samples else rate,
        samples_per_s=rate if is_samples else figures.get("samples_per_s"),
        data_s=figures.get("data_s"),
        loss=figures.get("loss"),
        batch=figures.get("batch"),
        elapsed_s=seconds(found["elapsed"]),
    )
    return reading, desc


def _rate(text: str, scale: str, unit: str, per: str) -> tuple[float | None, str]:
    """Things a second, and what they are: tqdm turns the rate round when it is below one."""
    value = None if text == "?" else float(text) * _SCALES[scale]
    if unit in ("s", "sec") and per not in ("s", "sec"):
        return (1.0 / value if value else None), per
    return value, unit


def _scaled(text: str) -> float:
    return float(text[:-1]) * _SCALES[text[-1]] if text[-1] in _SCALES else float(text)


# A log of a form we do not know, read by the user's own regular expression.


class Pattern:
    """Named groups: step, its (steps/s), samples (samples/s), time and data_time (seconds a step), loss, batch."""

    def __init__(self, expression: str) -> None:
        try:
            self._pattern = re.compile(expression)
        except re.error as error:
            raise FlatoutError(f"--pattern {expression!r} is no regular expression: {error}") from error
        names = set(self._pattern.groupindex)
        known = ", ".join(_FIELDS)
        if unknown := sorted(names - set(_FIELDS)):
            raise FlatoutError(f"--pattern names the unknown group {unknown[0]!r}; known are {known}")
        if not names & (_RATES | {"step"}):
            raise FlatoutError(f"--pattern needs a named group such as (?P<its>[\\d.]+); known are {known}")
        self._names = sorted(names)

    def read(self, number: int, text: str) -> Reading | None:
        match = self._pattern.search(text)
        if match is None:
            return None
        figures: dict[str, Any] = {}
        for name in self._names:
            try:
                figures[_FIELDS[name]] = float((match[name] or "").replace(",", ""))
            except ValueError:
                continue
        when = stamp(text)
        return Reading(line=number, source="pattern", stamp_s=when[0] if when else None, **figures) if figures else None
