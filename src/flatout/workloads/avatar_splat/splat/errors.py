"""Errors that are the user's to mend."""

from __future__ import annotations


class UserError(Exception):
    """One line that quotes the value and names the way out."""


def told(error: UserError) -> str:
    """The one line of an error, also when a loader worker raised it and wrapped a traceback around it."""
    line = str(error).strip().splitlines()[-1]
    return line.rpartition("UserError: ")[2]
