"""What can go wrong for a user, as one clear line and an exit code."""

from __future__ import annotations


class FlatoutError(Exception):
    """A mistake or obstacle the user can act on. The message quotes the value and names the way out."""

    exit_code = 2
