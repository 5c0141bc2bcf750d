"""A response that goes on: server-sent events to one client until it leaves, or the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from starlette.types import Receive, Scope, Send

from flatout.app.serving.audience import Client
from flatout.app.serving.hub import Hubs

_START = b"retry: 2000\n\n"


class EventStream:
    """An ASGI response. `let_go` ends the connection of a client (its address is given) that does not read."""

    def __init__(self, path: Path, hubs: Hubs, let_go: Callable[[object], None]) -> None:
        self._path = path
        self._hubs = hubs
        self._let_go = let_go

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _START, "more_body": True})
        client = Client(lambda: self._let_go(scope.get("client")))
        hub = self._hubs.join(self._path, client)
        watching = asyncio.create_task(_until_gone(receive, client))
        try:
            while (part := await client.next()) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()
            hub.part(client)


async def _until_gone(receive: Receive, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.leave()
