"""Runs the dashboard until it is told to stop, and leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from flatout.dashboard.address import Address
from flatout.dashboard.guard import Guard
from flatout.dashboard.hub import Client, Hubs
from flatout.dashboard.run_list import RunList
from flatout.errors import FlatoutError
from flatout.report.dashboard import FILES, page

_MOST_CONNECTIONS = 200
# The report brings its script along. In a sandbox it has no origin: whatever a run's name holds, it cannot ask us.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'none'"
)
_START = b"retry: 2000\n\n"


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


def serve(address: Address, shelf: RunList, until: Callable[[], None] | None = None) -> None:
    """Answer until a signal comes, or `until`, called in a thread, returns."""
    asyncio.run(_serve(address, shelf, until))


async def _serve(address: Address, shelf: RunList, until: Callable[[], None] | None) -> None:
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


# What the dashboard answers. Every route is a GET, and none of them changes anything.


class Dashboard:
    """The application behind its guard."""

    def __init__(self, shelf: RunList, token: str, port: int, let_go: Callable[[object], None]) -> None:
        self.hubs = Hubs()
        self._shelf = shelf
        self._let_go = let_go
        self._reporting = asyncio.Lock()
        self.routes = [
            Route("/", self._list_page),
            Route("/run/{key}", self._run_page),
            Route("/report/{key}", self._report),
            Route("/api/runs", self._runs),
            Route("/api/run/{key}/events", self._events),
            Route("/static/{name}", self._static),
            # Browsers ask for it by themselves.
            Route("/favicon.ico", self._icon),
        ]
        inner = Starlette(routes=self.routes, exception_handlers={HTTPException: _plain_error, 500: _plain_error})
        self._guarded: ASGIApp = Guard(inner, token, port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def _list_page(self, _: Request) -> Response:
        return HTMLResponse(page("runs"))

    async def _run_page(self, request: Request) -> Response:
        await self._path(request)
        return HTMLResponse(page("run"))

    async def _runs(self, _: Request) -> Response:
        runs = await asyncio.to_thread(self._shelf.runs)
        return JSONResponse({"runs": [{"key": shelved.key, **asdict(shelved.line)} for shelved in runs]})

    async def _events(self, request: Request) -> EventStream:
        return EventStream(await self._path(request), self.hubs, self._let_go)

    async def _report(self, request: Request) -> Response:
        path = await self._path(request)
        language = request.query_params.get("lang", "en")
        # One at a time: each takes a core for a second or more.
        async with self._reporting:
            try:
                text = await asyncio.to_thread(_report_html, path, language)
            except FlatoutError as error:
                raise HTTPException(404, str(error)) from error
        return HTMLResponse(text, headers={"Content-Security-Policy": _REPORT_POLICY})

    async def _static(self, request: Request) -> Response:
        # By its name among those that are there: no path is ever made from what was asked for.
        file = FILES.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return Response(file.read(), media_type=file.media_type)

    async def _icon(self, _: Request) -> Response:
        return Response(FILES["icon.svg"].read(), media_type=FILES["icon.svg"].media_type)

    async def _path(self, request: Request) -> Path:
        path = await asyncio.to_thread(self._shelf.find, request.path_params["key"])
        if path is None:
            raise HTTPException(404)
        return path


async def _plain_error(_: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    words = error.detail if isinstance(error, HTTPException) else "something went wrong"
    return PlainTextResponse(f"{code}: {words}\n", code)


# A response that goes on: server-sent events to one client until it leaves, or the run ends.


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


def _report_html(path: Path, language: str) -> str:
    """The one-file report of a run, as `flatout report` writes it."""
    # Everything that a report shows takes long to import, and nobody may ever ask for one.
    from flatout.launch.run_page import run_html

    return run_html(path, language)
