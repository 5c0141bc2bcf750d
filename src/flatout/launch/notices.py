"""Lines for the user on what is missing."""

from __future__ import annotations

from types import TracebackType


class Notices(list[str]):
    def unless(self, what: str) -> _Attempt:
        """`with notices.unless("no telemetry"):` try something; if it fails, note what is missing and go on."""
        return _Attempt(self, what)


class _Attempt:
    def __init__(self, notices: Notices, what: str) -> None:
        self._notices = notices
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._notices.append(f"{self._what} ({type(error).__name__}: {error})")
        return True
