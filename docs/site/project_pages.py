"""Pages from outside of docs/: benchmark results, the changelog, the decisions' index; and links to them."""

from __future__ import annotations

import re
from pathlib import Path

from writing import escaped, table

ROOT = Path(__file__).resolve().parents[2]
_RESULTS = ROOT / "benchmarks" / "results"
_TO_RESULTS = re.compile(r"\]\((?:\.\./)+benchmarks/results(?:/([\w.-]+\.md(?:#[\w.-]+)?))?/?\)")
_TO_RAW = re.compile(r"\[([^\]]*)\]\(raw(?:/[\w.-]+)?\)")


def pages() -> dict[str, str]:
    files = {file.name.replace("README", "index"): file for file in _RESULTS.glob("*.md")}
    results = {f"results/{name}": _result_page(file) for name, file in files.items()}
    # The changelog's links are meant from the repository's top.
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return {
        "decisions/index.md": _decisions_index(),
        "changelog.md": changelog,
        **results,
    }


def links_within_the_site(markdown: str, path: str) -> str:
    """In the repository pages link to benchmarks/results; in the site these are pages of their own."""
    up = "../" * path.count("/")
    return _TO_RESULTS.sub(lambda link: f"]({up}results/{link.group(1) or 'index.md'})", markdown)


def _result_page(file: Path) -> str:
    """Raw figures are in the repository only."""
    return _TO_RAW.sub(r"\1", file.read_text(encoding="utf-8"))


def _decisions_index() -> str:
    files = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    rows = [(file.name[:4], f"[{_title(file)}]({file.name})") for file in files]
    return "\n\n".join(["# Decisions", "Why it is made as it is.", table(("", "decision"), rows)])


def _title(file: Path) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    words = re.sub(r"^(\d+)[.:]?\s+", "", first.lstrip("# ").strip())
    return escaped(words).strip()
