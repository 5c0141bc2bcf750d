"""Texts of a recording: JSON values spread over several slots, put together again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from flatout.store.header import PAYLOAD_AT, PAYLOAD_BYTES

_FIRST, _LAST = 1, 2

Text = tuple[str, Any]


class TextAssembler:
    """Feed it text slots in file order; it gives back the texts that are whole and counts those that are not."""

    def __init__(self) -> None:
        self.lost = 0
        self._state: Literal["none", "open", "broken"] = "none"
        self._breaks = 0
        self._pieces: list[bytes] = []

    @property
    def unfinished(self) -> bool:
        return self._state != "none"

    def feed(self, slots: Iterable[bytes], breaks_before: Iterable[int]) -> list[Text]:
        """`breaks_before` counts, for each slot, the lost slots before it: a text may not span one."""
        whole: list[Text] = []
        for slot, breaks in zip(slots, breaks_before, strict=True):
            flags = slot[1]
            if flags & _FIRST:
                self.lost += self._state != "none"
                self._state, self._breaks, self._pieces = "open", breaks, []
            elif self._state != "open" or breaks != self._breaks:
                self._state = "broken"
            self._pieces.append(slot[PAYLOAD_AT : PAYLOAD_AT + min(PAYLOAD_BYTES, slot[2] | slot[3] << 8)])
            if flags & _LAST:
                self._end(whole)
        return whole

    def _end(self, whole: list[Text]) -> None:
        text = _decode(b"".join(self._pieces)) if self._state == "open" else None
        self._state, self._pieces = "none", []
        if text is None:
            self.lost += 1
        else:
            whole.append(text)


def _decode(data: bytes) -> Text | None:
    try:
        value = json.loads(data)
        return str(value["what"]), value["value"]
    except (ValueError, KeyError, TypeError):
        return None
