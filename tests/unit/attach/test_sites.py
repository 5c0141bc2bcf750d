from __future__ import annotations

import struct
import sys
from itertools import pairwise
from typing import Any

from flatout.attach import wire
from flatout.attach.sites import Sites

FIELDS = [name for name, _ in wire.KINDS["site"][1]]


class Kept:
    """What is on record, by place."""

    def __init__(self) -> None:
        self.slots: list[bytes] = []

    def text(self, what: str, value: object) -> None:
        pass

    def put(self, place: int, body: bytes) -> int:
        if place < 0:
            self.slots.append(body)
            return len(self.slots) - 1
        self.slots[place] = body
        return place

    @property
    def records(self) -> list[dict[str, Any]]:
        layout: struct.Struct = wire.packer("site")
        return [dict(zip(FIELDS, layout.unpack(slot)[3:], strict=True)) for slot in self.slots]


def test_totals_are_kept_at_the_end_of_each_slice() -> None:
    kept = Kept()
    sites: Any = Sites(lambda: kept)  # type: ignore[arg-type,return-value]
    site = sites.at("item", sys._getframe())
    for second in range(100):
        for _ in range(4):
            site.add(0.001)
            sites.flush(second, float(second))

    records = kept.records
    assert records[-1]["count"] == 400
    # One a second at first, then as long as a tenth of the time so far.
    assert [record["slice"] for record in records[:4]] == [0, 2, 3, 4]
    assert 20 < len(records) < 45
    # A slice begins with a step of which nothing is in the records before.
    for earlier, later in pairwise(records):
        assert later["slice"] - 1 <= earlier["count"] / 4 <= later["slice"]


def test_a_long_run_has_few_slices() -> None:
    kept = Kept()
    sites: Any = Sites(lambda: kept)  # type: ignore[arg-type,return-value]
    site = sites.at("item", sys._getframe())
    for second in range(0, 7 * 86_400, 5):
        site.add(0.001)
        sites.flush(second, float(second))

    assert len(kept.slots) < 200
