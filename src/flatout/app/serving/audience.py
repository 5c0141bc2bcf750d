"""Who looks at a run: everyone gets the same bytes, and one who does not keep up is let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

# Messages that may wait for one client; at one every few seconds, what is not read by then is read by nobody.
_MOST_WAITING = 8


class Client:
    """One open stream. `let_go` ends its connection at once, also when it does not read."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._let_go = let_go
        self.is_new = True
        self.is_gone = False

    def give(self, message: bytes) -> None:
        if self.is_gone:
            return
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.leave()
            self._let_go()

    def leave(self) -> None:
        """The stream ends when it has sent what is waiting; nothing more is taken in."""
        self.is_gone = True
        if not self._waiting.full():
            self._waiting.put_nowait(None)

    async def next(self) -> bytes | None:
        """The next message; None when the stream is to end."""
        if self.is_gone and self._waiting.empty():
            return None
        return await self._waiting.get()


def message(event: str, value: Any) -> bytes:
    """One server-sent event. JSON has no line breaks of its own, so it is one line."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return f"event: {event}\ndata: {text}\n\n".encode()
