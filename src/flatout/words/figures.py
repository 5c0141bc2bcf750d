"""Figures as people write them: `{:.3g}` says 1.16e+03 where a sentence should say 1,160."""

from __future__ import annotations

import re

_WITH_POWER = re.compile(r"\b\d(?:\.\d+)?e\+\d+\b")


def plain(text: str) -> str:
    return _WITH_POWER.sub(lambda found: f"{float(found.group()):,.0f}", text)
