"""What the user can put right, told in one line."""

from __future__ import annotations


class UsageError(Exception):
    """A flag, a file or a folder is not as it must be; the message says what to do."""


def one_line(error: UsageError) -> str:
    """The message alone. An error from a loader's worker arrives wrapped in the text of the worker's traceback."""
    last = str(error).strip().splitlines()[-1]
    return last.removeprefix(f"{type(error).__module__}.{type(error).__qualname__}: ")
