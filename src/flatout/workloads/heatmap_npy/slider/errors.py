"""What the user can put right."""

from __future__ import annotations


class SliderError(Exception):
    """Ends the run with its message, on one line."""


def one_line(error: BaseException) -> str:
    """A worker process hands its error over with its whole traceback; the message is the last line of that."""
    last = str(error).strip().splitlines()[-1]
    return last.rsplit(f"{SliderError.__name__}: ", 1)[-1]
