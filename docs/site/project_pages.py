"""Pages from outside of docs/: benchmark results, the changelog, the decisions' index; and links to them."""

from __future__ import annotations

import re
from pathlib import Path

from writing import escaped, table

ROOT = Path(__file__).resolve().parents[2]
_RESULTS = ROOT / "benchmarks" / "results"
_TO_RESULTS = re.compile(r"\]\((?:\.\./)+benchmarks/results(?:/([\w.-]+\.md))?/?\)")


def pages() -> dict[str, str]:
    results = {f"results/{file.name}": file.read_text(encoding="utf-8") for file in _result_files()}
    # The changelog's links are meant from the repository's top.
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return {
        "results/index.md": _results_index(),
        "decisions/index.md": _decisions_index(),
        "changelog.md": changelog,
        **results,
    }


def links_within_the_site(markdown: str, path: str) -> str:
    """In the repository pages link to benchmarks/results; in the site these are pages of their own."""
    up = "../" * path.count("/")
    return _TO_RESULTS.sub(lambda link: f"]({up}results/{link.group(1) or 'index.md'})", markdown)


def _result_files() -> list[Path]:
    return sorted(_RESULTS.glob("*.md"), reverse=True)


def _results_index() -> str:
    rows = [(file.name[:10], f"[{_title(file)}]({file.name})") for file in _result_files()]
    return "\n\n".join(
        [
            "# Results",
            "What was measured, with hardware and commit, as it stands in `benchmarks/results`; newest first. Every "
            "figure of this site is from here.",
            table(("date", "what"), rows),
        ]
    )


def _decisions_index() -> str:
    files = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    rows = [(file.name[:4], f"[{_title(file)}]({file.name})") for file in files]
    return "\n\n".join(["# Decisions", "Why it is made as it is.", table(("", "decision"), rows)])


def _title(file: Path) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    words = re.sub(r"^(\d+)[.:]?\s+", "", first.lstrip("# ").strip())
    return escaped(words).strip()
