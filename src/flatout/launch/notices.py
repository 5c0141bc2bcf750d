"""Lines for the user on what is missing."""

from __future__ import annotations

from types import TracebackType

from flatout.records.message import Message, message, verbatim


class Notices(list[Message | str]):
    def unless(self, what: Message) -> _Attempt:
        """`with notices.unless(message("run.no_telemetry")):` try something; if it fails, say so and go on."""
        return _Attempt(self, what)


class _Attempt:
    def __init__(self, notices: Notices, what: Message) -> None:
        self._notices = notices
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        why = verbatim(f"{type(error).__name__}: {error}")
        self._notices.append(message("run.attempt_failed", what=self._what, error=why))
        return True
