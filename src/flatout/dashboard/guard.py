"""Who may see the dashboard: one guard before every route, so that no route can forget it.

In this order: a Host that is not this machine (a name that was bent to point here) is refused with 403, then a request
that another site's page makes (403), then everything but GET (405), then whoever has not shown the token (401), then a
path that is not spelt plainly (404). The token comes once, in the address that was printed; a cookie takes its place.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import re
from email.utils import formatdate
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HERE = frozenset({"127.0.0.1", "localhost", "::1"})
# What our addresses are made of. No percent sign: nothing that has to be decoded before it is understood.
_PLAIN = re.compile(rb"/(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# A page, not a redirect: a browser that came from another site would leave the strict cookie out of a redirect.
_ENTER = '<!doctype html><meta charset="utf-8"><title>flatout</title><meta http-equiv="refresh" content="0;url={path}">'


class Guard:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        # Cookies are shared by all ports of a host: two dashboards must not take each other's away.
        self._cookie = f"flatout-{port}"
        # Not the token itself, so that a cookie that was seen opens no other dashboard.
        self._pass = hmac.new(self._token, b"cookie", hashlib.sha256).hexdigest().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = self._refusal(scope) or self._entrance(scope)
        if answer is not None:
            await answer(scope, receive, _sealed(send))
        else:
            await self._app(scope, receive, _sealed(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not _is_here(headers.getlist("host")) or not _is_same_origin(headers, scope):
            return _refused(403, "this address is not the dashboard's own")
        if scope["method"] != "GET":
            return _refused(405, f"the dashboard only shows; it takes no {scope['method']}", {"Allow": "GET"})
        if not self._is_known(headers) and not self._has_token(scope):
            return _refused(401, "open the address that flatout printed, with its token")
        if not _PLAIN.fullmatch(scope["raw_path"]):
            return _refused(404, "there is nothing here")
        return None

    def _entrance(self, scope: Scope) -> Response | None:
        """The token is taken out of the address bar and given back as a cookie."""
        if not self._has_token(scope):
            return None
        path = scope["raw_path"].decode("ascii")
        page = HTMLResponse(_ENTER.format(path=html.escape(path)))
        page.set_cookie(self._cookie, self._pass.decode(), path="/", httponly=True, samesite="strict")
        return page

    def _has_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self._token)

    def _is_known(self, headers: Headers) -> bool:
        # Parted by hand: other servers of this machine leave cookies here too, and theirs need not be well-formed.
        parts = (part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
        return any(n == self._cookie and hmac.compare_digest(value.encode(), self._pass) for n, _, value in parts)


def _is_here(hosts: list[str]) -> bool:
    """By name, not by port: through a tunnel the port may be another."""
    if len(hosts) != 1:
        return False
    try:
        parts = urlsplit(f"//{hosts[0]}")
        return parts.hostname in _HERE and parts.username is None and parts.path == ""
    except ValueError:
        return False


def _is_same_origin(headers: Headers, scope: Scope) -> bool:
    """Whether one of our own pages asks, or a person who typed or followed an address."""
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{headers['host']}":
        return False
    site = headers.get("sec-fetch-site", "none")
    is_visit = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return site in ("same-origin", "none") or (is_visit and headers.get("sec-fetch-dest") == "document")


def _refused(code: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{code}: {why}\n", code, headers)


def _sealed(send: Send) -> Send:
    """Every answer leaves with our headers; one that has set its own policy keeps that."""

    async def sealed(event: Message) -> None:
        if event["type"] == "http.response.start":
            headers = MutableHeaders(scope=event)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Date", formatdate(usegmt=True))
        await send(event)

    return sealed
