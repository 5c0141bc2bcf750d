"""Errors that are shown to the user as one line."""

from __future__ import annotations

import re


class UserError(Exception):
    """Something the user can put right: a flag, a config value, a file."""


def one_line(error: BaseException) -> str:
    """The message alone: a loader's worker process sends its whole traceback, with the message in the last line."""
    lines = str(error).strip().splitlines()
    last = lines[-1] if lines else type(error).__name__
    return re.sub(r"^(?:\w+\.)*UserError: ", "", last)
