"""The site's own modules, loaded as mkdocs loads them, and what the tests read off its pages."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


def site_module(name: str) -> ModuleType:
    """A module of docs/site, whose folder is on the path for as long as it is imported."""
    sys.path.insert(0, str(DOCS / "site"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS / "site"))


def written_pages() -> list[Path]:
    return [page for page in sorted(DOCS.rglob("*.md")) if "decisions" not in page.parts]


def tables(text: str) -> list[tuple[list[list[str]], str]]:
    """Every table as rows of cells, and the text between it and the next table or heading."""
    found = []
    for match in re.finditer(r"((?:^\|.*\n)+)((?:(?!\||#).*(?:\n|$))*)", text, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in match.group(1).splitlines()]
        found.append(([row for row in rows if not set("".join(row)) <= set("-: ")], match.group(2)))
    return found
