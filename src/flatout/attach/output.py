"""Where the parts of the tracer write: a recording, or nothing where none could be made."""

from __future__ import annotations

from typing import Protocol


class Output(Protocol):
    def append(self, body: bytes) -> int:
        """Write one slot; returns its place, or -1 if it had to be dropped."""

    def put(self, place: int, body: bytes) -> int:
        """Write running totals over their earlier slot, or anew; returns their place."""

    def text(self, what: str, value: object) -> None:
        """Write a JSON value under a name."""

    def close(self) -> None: ...
