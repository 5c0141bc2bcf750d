"""What the dashboard answers. Every route is a GET, and none of them changes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from flatout.app.serving.guard import Guard
from flatout.app.serving.hub import Hubs
from flatout.app.serving.reports import report_page
from flatout.app.serving.shelf import Shelf
from flatout.app.serving.stream import EventStream
from flatout.errors import FlatoutError
from flatout.report.dashboard import FILES, page

# The report brings its script along. In a sandbox it has no origin: whatever a run's name holds, it cannot ask us.
_REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'none'"
)


class Dashboard:
    """The application behind its guard."""

    def __init__(self, shelf: Shelf, token: str, port: int, let_go: Callable[[object], None]) -> None:
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
                text = await asyncio.to_thread(report_page, path, language)
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
