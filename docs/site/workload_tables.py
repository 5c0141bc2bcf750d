"""The expert's changes to a bundled project, put where a page asks for them."""

from __future__ import annotations

import re
import tomllib

from project_pages import ROOT
from writing import escaped, table

_ASKED = re.compile(r"<!-- expert's changes: (\w+) -->")


def filled(markdown: str) -> str:
    return _ASKED.sub(lambda asked: changes(asked.group(1)), markdown)


def changes(workload: str) -> str:
    """Every change with its class, from the file that the benchmark itself reads."""
    text = (ROOT / "benchmarks" / "experts" / workload / "changes.toml").read_text(encoding="utf-8")
    rows = [(load["class"], escaped(load["what"]), escaped(load["replaces"])) for load in tomllib.loads(text)["change"]]
    return table(("class", "change", "instead of"), rows)
