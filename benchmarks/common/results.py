"""Dated results: one page per benchmark for people, raw JSON for machines, with hardware, commit and versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path

from benchmarks.common.child import ROOT

RESULTS = ROOT / "benchmarks" / "results"
_RAW = "Raw figures are in [raw](raw)."
_INTRODUCTION = f"Newest first. {_RAW}"
_ANCHOR = re.compile(r'^<a id="([\w.-]+)"></a>$', re.MULTILINE)


def machine() -> dict[str, object]:
    """What this was measured on. No host name: a result is about a kind of machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "gpu": _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def versions(*distributions: str) -> dict[str, str | None]:
    """Installed versions of this environment's packages."""
    return {name: _version(name) for name in distributions}


def write(benchmark: str, results: Mapping[str, object], page: str, where: Path = RESULTS) -> Path:
    """Put a result on top of its benchmark's page and its figures into `raw/`; returns the path of the page.

    `benchmark` may name a variant behind the page's name: `detection-cuda` is a result of the page `detection`.
    """
    facts = machine()
    commit = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    today = datetime.date.today().isoformat()
    stem = f"{today}-{benchmark}-{_slug(str(facts['gpu'] or facts['cpu']))}"
    document = {"benchmark": benchmark, "date": today, "commit": commit, "machine": facts, **results}
    (where / "raw").mkdir(parents=True, exist_ok=True)
    (where / "raw" / f"{stem}.json").write_text(json.dumps(document, indent=1, default=_plain) + "\n")
    measured_on = f"{_sentence(facts)}; commit `{commit or 'unknown'}`."
    path = where / f"{_page_name(benchmark)}.md"
    title, sections = _read_page(path)
    sections[stem] = f"## {today}: {benchmark}\n\n{measured_on}\n\n{page.strip()}"
    parts = [f'<a id="{anchor}"></a>\n\n{sections[anchor]}' for anchor in _newest_first(sections, stem)]
    path.write_text("\n\n".join([f"# {title}", _INTRODUCTION, *parts]) + "\n")
    write_index(where)
    return path


def write_index(where: Path = RESULTS) -> None:
    rows = []
    for path in sorted(where.glob("*.md")):
        if path.name != "README.md":
            title, sections = _read_page(path)
            rows.append((f"[{title}]({path.name})", max(sections)[:10], str(len(sections))))
    words = "What was measured, with hardware and commit: one page per benchmark, the newest result first."
    head = f"# Results\n\n{words} {_RAW}\n\n"
    (where / "README.md").write_text(head + table(("benchmark", "newest", "results"), rows))


def _page_name(benchmark: str) -> str:
    """The page that holds results of this name: the longest that it begins with, or one of its own."""
    name = benchmark.replace("_", "-")
    pages = [path.stem for path in RESULTS.glob("*.md") if f"{name}-".startswith(f"{path.stem}-")]
    return max(pages, key=len, default=name)


def _read_page(path: Path) -> tuple[str, dict[str, str]]:
    """Its title, and the text of each result by its anchor."""
    if not path.exists():
        return path.stem, {}
    first, *parts = _ANCHOR.split(path.read_text())
    return first.partition("\n")[0].lstrip("# "), dict(
        zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True)
    )


def _newest_first(anchors: Iterable[str], newest: str) -> list[str]:
    """Those that were there stay in their order."""
    return [newest, *(anchor for anchor in anchors if anchor != newest)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def _sentence(facts: dict[str, object]) -> str:
    where = f"{facts['cpu']} ({facts['cores']} cores, {facts['architecture']})"
    gpu = f", {facts['gpu']}" if facts["gpu"] else ""
    return f"{where}{gpu}, Python {facts['python']}, load {facts['load_1m']} at the end"


def _cpu_model() -> str:
    for line in (_output("lscpu") or "").splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _slug(text: str) -> str:
    first = text.splitlines()[0].split(",")[0]
    return re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")
