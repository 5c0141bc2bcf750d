"""What the batches of a run consist of: values wider than they need to be, and padding."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.records.message import Message
from flatout.records.report import Location


@dataclass(frozen=True, slots=True)
class NarrowCopy:
    """A line that copies to the device what a narrower type would hold, by the values that were looked at."""

    location: Location
    # The type that most of the bytes to be saved have, and the one that would hold them.
    dtype: str
    narrow: str
    # Of the bytes copied there, those a narrower type would save.
    saved_share: float


@dataclass(frozen=True, slots=True)
class Padding:
    """Padded sequences in the batches of the training loader. Shares are of what the model computes."""

    # Batches and rows that were looked at.
    batches: int
    rows: int
    # Places in a row of the mean batch.
    length: float
    share: float
    # The same if every batch were padded to its own longest sequence, and if batches were cut from chunks of fifty
    # sorted by length as well.
    share_if_trimmed: float
    share_if_sorted: float
    # What pads: a value, or what an attention mask leaves out.
    kind: Message
    # In how many of the looks the model computed at the padded length.
    computed_share: float
