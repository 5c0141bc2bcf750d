"""When a line was printed, by the time stamp that logging puts in front of it."""

from __future__ import annotations

import re
from datetime import datetime

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
