"""Progress bars: tqdm's, and Lightning's drawn by rich."""

from __future__ import annotations

import re

from flatout.diagnose.logs.clock import seconds
from flatout.diagnose.logs.figures import SAMPLE_UNITS, pairs
from flatout.diagnose.logs.readings import Reading

_COUNT = r"(?P<n>\d+(?:\.\d+)?[kKMG]?)"
_TOTAL = r"(?P<total>\d+(?:\.\d+)?[kKMG]?)"
_RATE = r"(?P<rate>\?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?P<scale>[kKMG]?)\s*(?P<per>[A-Za-z ]*/\s?[A-Za-z]+)"
_TIME = r"(?:\d+ ?d(?:ays?)?,? ?)?[\d:]+"
# " 45%|████▌     | 450/1000 [00:48<00:59,  9.3it/s, loss=0.31]", also without a total: "450it [00:48,  9.3it/s]".
_TQDM = re.compile(
    rf"(?:\d+%\|[^|]*\|\s*{_COUNT}/{_TOTAL}|(?P<bare>\d+)[A-Za-z]+)\s*"
    rf"\[(?P<elapsed>{_TIME})(?:<(?:\?|{_TIME}))?,\s*{_RATE}(?P<rest>[^\]]*)\]?"
)
# "Epoch 0/9 ━━━━━━━━ 45/100 0:00:05 • 0:00:06 8.90it/s v_num: 0 loss: 0.5"
_RICH = re.compile(rf"[━╸╺╴]{{2,}}\s+{_COUNT}/{_TOTAL}\s+(?P<elapsed>{_TIME})\s+•\s+\S+\s+{_RATE}(?P<rest>.*)")
_DIGITS = r"\d+(?:\.\d+)?"
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


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
