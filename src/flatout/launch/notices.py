"""Lines for the user on what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flatout.records.message import Message, message, verbatim


class Notices(list[Message | str]):
    @contextmanager
    def unless(self, what: Message) -> Iterator[None]:
        """`with notices.unless(message("run.no_telemetry")):` try something; if it fails, say so and go on."""
        try:
            yield
        except Exception as error:
            why = verbatim(f"{type(error).__name__}: {error}")
            self.append(message("run.attempt_failed", what=what, error=why))
