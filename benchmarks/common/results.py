"""Dated results: a JSON file for machines and a Markdown page for people, with hardware, commit and versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path

from benchmarks.common.child import ROOT

RESULTS = ROOT / "benchmarks" / "results"


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
    """Write `<date>-<benchmark>-<machine>.json` and `.md`; returns the path of the page."""
    facts = machine()
    commit = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    today = datetime.date.today().isoformat()
    stem = f"{today}-{benchmark}-{_slug(str(facts['gpu'] or facts['cpu']))}"
    document = {"benchmark": benchmark, "date": today, "commit": commit, "machine": facts, **results}
    where.mkdir(parents=True, exist_ok=True)
    (where / f"{stem}.json").write_text(json.dumps(document, indent=1, default=_plain) + "\n")
    heading = f"# {benchmark}, {today}\n\n{_sentence(facts)}; commit `{commit or 'unknown'}`.\n\n"
    path = where / f"{stem}.md"
    path.write_text(heading + page.rstrip() + "\n")
    return path


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
