"""What a table of words is made of."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """Two templates that name the same arguments: `{wait_ms:.3g} of {step_ms:.3g} ms`.

    An argument that is a message is rendered in the same language; of a tuple every item is, with commas between.
    """

    english: str
    chinese: str
