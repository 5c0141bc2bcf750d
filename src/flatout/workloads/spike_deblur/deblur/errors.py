"""The one error that reaches the user as a single line."""

from __future__ import annotations


class DeblurError(Exception):
    """Something the user can put right: a config key, a data file, a checkpoint."""


def one_line(error: Exception) -> str | None:
    """What to tell the user, or None where only a traceback helps.

    An error that crossed a worker process carries that process's traceback in front of its message.
    """
    if isinstance(error, DeblurError):
        return str(error).strip().splitlines()[-1].rpartition("DeblurError: ")[2]
    if isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
        reason = str(error).splitlines()[0].rstrip(". ")
        return f"{reason}; reduce DATA.CACHE_SIZE_GB or DATALOADER.TOTAL_WORKERS"
    return None
