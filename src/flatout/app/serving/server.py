"""Runs the dashboard until it is told to stop, and leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from flatout.app.serving.address import Address
from flatout.app.serving.priority import give_way
from flatout.app.serving.routes import Dashboard
from flatout.app.serving.shelf import Shelf

_MOST_CONNECTIONS = 200


class _Server(uvicorn.Server):
    """uvicorn, with our clients told that it ends: else it would wait for streams that never do."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        """Sleeps until it is told to end. uvicorn's own looks ten times a second whether it is."""
        await self._ended.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.end()

    def end(self) -> None:
        """From any thread, and from a signal's handler."""
        self.should_exit = True
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._ended.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._on_end()
        await super().shutdown(sockets)

    def let_go(self, client: object) -> None:
        """End the connection from this address now, whether or not its last bytes were read."""
        for connection in list(self.server_state.connections):
            if getattr(connection, "client", None) == client:
                connection.transport.abort()


def serve(address: Address, shelf: Shelf, until: Callable[[], None] | None = None) -> None:
    """Answer until a signal comes, or `until`, called in a thread, returns."""
    give_way()
    asyncio.run(_serve(address, shelf, until))


async def _serve(address: Address, shelf: Shelf, until: Callable[[], None] | None) -> None:
    dashboard = Dashboard(shelf, address.token, address.port, lambda client: server.let_go(client))
    config = uvicorn.Config(
        dashboard,
        http="h11",
        ws="none",
        lifespan="off",
        # Nothing is logged: addresses may hold the token.
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        # The guard gives each answer its date: uvicorn writes it once a second, asked or not.
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, dashboard.hubs.close)
    if until is not None:
        # A daemon: a signal may end the server while this thread still waits.
        threading.Thread(target=_stop_after, args=(until, server), name="flatout-until", daemon=True).start()
    await server.serve([address.socket])


def _stop_after(until: Callable[[], None], server: _Server) -> None:
    until()
    server.end()
