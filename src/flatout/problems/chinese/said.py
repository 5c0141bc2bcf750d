"""What all detectors say, in Chinese: templates with gaps, by their English ones, from the tables of `flatout.words`.

A gap {n} takes a number, {} whatever stands there; what a gap takes may be one of these again. Needed until findings
hold messages, and pages render these.
"""

from __future__ import annotations

import string

from flatout.words.problems import detector_words
from flatout.words.table import Words


def _gaps(words: Words) -> tuple[str, str]:
    """Templates of `flatout.words` with their gaps as they are here: by place instead of by name."""
    parts = list(string.Formatter().parse(words.english))
    names = [name for _, name, _, _ in parts if name is not None]
    english = "".join(
        text + ("" if name is None else "{n}" if spec and spec[-1] in "gfd" else "{}") for text, name, spec, _ in parts
    )
    chinese = "".join(
        text + ("" if name is None else f"{{{names.index(name)}}}")
        for text, name, _, _ in string.Formatter().parse(words.chinese)
    )
    return english, chinese


SAID: dict[str, str] = dict(map(_gaps, detector_words().values()))
