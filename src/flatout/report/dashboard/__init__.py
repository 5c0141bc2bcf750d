"""The pages of the live dashboard: plain HTML, style and script, served as they lie here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
# Colours and the charts are those of the report.
_SHARED = _HERE.parent / "html"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    path: Path

    @property
    def media_type(self) -> str:
        return _TYPES[self.path.suffix]

    def read(self) -> bytes:
        return self.path.read_bytes()


_PATHS = (
    *sorted(path for path in _HERE.iterdir() if path.suffix in _TYPES),
    _SHARED / "base.css",
    _SHARED / "vendor" / "uPlot.min.css",
    _SHARED / "vendor" / "uPlot.iife.min.js",
)
FILES = {path.name: StaticFile(path) for path in _PATHS}


def page(name: str) -> str:
    """A whole page: "runs" or "run"."""
    return (_HERE / f"{name}.html").read_text(encoding="utf-8")
