"""The dashboard over real sockets: who gets in, what comes out, and that it holds out against many and slow clients."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from flatout.dashboard.run_list import RunList, key_of
from flatout.dashboard.server import Dashboard
from tests.dashboard import LIMIT_S, Event, GrowingRun, Server, events, serving
from tests.integration.running import until

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT")
EVIL = "<script>alert(1)</script>"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose command holds what a browser must not execute."""
    run = GrowingRun(tmp_path_factory.mktemp("runs"), ("train.py", EVIL), seconds=8)
    run.end()
    return run.path


@pytest.fixture(scope="module")
def server(stored: Path) -> Iterator[Server]:
    with serving(stored.parent) as started:
        yield started


@pytest.fixture(scope="module")
def paths(stored: Path) -> dict[str, str]:
    """A real address for every route there is: a new route without one here fails the test below."""
    key = key_of(stored)
    return {
        "/": "/",
        "/run/{key}": f"/run/{key}",
        "/report/{key}": f"/report/{key}",
        "/api/runs": "/api/runs",
        "/api/run/{key}/events": f"/api/run/{key}/events",
        "/static/{name}": "/static/run.js",
        "/favicon.ico": "/favicon.ico",
    }


def test_the_table_names_every_route(paths: dict[str, str], tmp_path: Path) -> None:
    routes = Dashboard(RunList(tmp_path), "token", 1, lambda _: None).routes

    assert {route.path for route in routes} == set(paths)
    assert all(route.methods == {"GET", "HEAD"} for route in routes), "the guard lets GET through alone"


def test_every_route_answers_who_has_the_token(server: Server, paths: dict[str, str]) -> None:
    answers = {path: server.ask(path) for path in paths.values()}

    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(paths.values(), 200)
    for path, answer in answers.items():
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert ("sandbox" in policy) == path.startswith("/report/")
        assert "unsafe" not in policy or path.startswith("/report/")
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_no_route_answers_without_the_token(server: Server, paths: dict[str, str]) -> None:
    for path in (*paths.values(), "/nothing", "/docs", "/openapi.json"):
        for headers in ({}, {"Cookie": f"flatout-{server.port}=guess"}, {"Cookie": 'x="'}):
            answer = server.ask(path, known=False, **headers)
            assert (path, answer.status) == (path, 401)
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert server.ask(f"{path}?token=guess", known=False).status == 401
        assert server.ask(f"{path}?token={server.token}&token=x", known=False).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "localhost@evil.example"]
)
def test_no_route_answers_under_a_foreign_name(server: Server, paths: dict[str, str], host: str) -> None:
    for path in paths.values():
        assert (path, server.ask(path, Host=host).status) == (path, 403)
        assert server.ask(f"{path}?token={server.token}", known=False, Host=host).status == 403


def test_the_end_of_a_tunnel_may_have_another_port(server: Server) -> None:
    assert server.ask("/", Host="localhost:9000").status == 200


@pytest.mark.parametrize("method", METHODS)
def test_no_route_takes_anything_but_get(server: Server, paths: dict[str, str], method: str) -> None:
    for path in paths.values():
        answer = server.ask(path, method)
        assert (path, answer.status in (400, 405)) == (path, True), answer.status
        foreign = server.ask(path, method, Origin="http://evil.example")
        assert (path, foreign.status in (400, 403)) == (path, True), foreign.status


def test_pages_of_other_sites_get_nothing(server: Server, paths: dict[str, str]) -> None:
    for path in paths.values():
        assert server.ask(path, Origin="http://evil.example").status == 403
        assert server.ask(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
        assert server.ask(path, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert server.ask(f"/?token={server.token}", known=False, **visit).status == 200, "a link may be followed"
    assert (
        server.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe").status == 403
    )


@pytest.mark.parametrize(
    "path",
    [
        "/static/../routes.py",
        "/../../etc/passwd",
        "/static/%2e%2e/routes.py",
        "/static/%2E%2E%2Froutes.py",
        "/static/%252e%252e/routes.py",
        "/static/..%2froutes.py",
        "/static/..\\routes.py",
        "/static/%5c..%5croutes.py",
        "/static/__init__.py",
        "/static/run.js%00.css",
        "/static//run.js",
        "//evil.example/",
        "/run/..",
        "/run/%2e%2e",
        "/api/run/../events",
        "/report/last",
        "/nothing",
    ],
)
def test_no_path_leads_out(server: Server, path: str) -> None:
    assert server.ask(path).status == 404


def test_the_token_is_exchanged_for_a_strict_cookie_and_leaves_the_address(server: Server, stored: Path) -> None:
    path = f"/run/{key_of(stored)}"

    answer = server.ask(f"{path}?token={server.token}", known=False)
    page = answer.body.decode()

    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and server.token.lower() not in cookie
    assert f'content="0;url={path}"' in page and server.token not in page


def test_cookies_of_other_servers_do_no_harm(server: Server) -> None:
    assert server.ask("/", known=False, Cookie=f'a={{"b": [1]}}; c; ="; {server.cookie}').status == 200


def test_the_tunnel_is_told(server: Server) -> None:
    assert re.search(rf"ssh -N -L {server.port}:127\.0\.0\.1:{server.port} \S+@\S+", server.tunnel)


def test_a_stored_run_is_told_whole_and_the_stream_ends(server: Server, stored: Path) -> None:
    with closing(server.open(f"/api/run/{key_of(stored)}/events")) as answer:
        told = list(events(answer))

    assert [event.name for event in told][:2] == ["facts", "history"] and told[-1].name == "end"
    (report,) = [event.value for event in told if event.name == "verdict"]
    assert report["verdict"]["sentence"].startswith("The GPU waits for data")
    assert told[0].value["argv"] == ["train.py", EVIL]


def test_pages_hold_nothing_of_a_run_and_the_report_no_markup_of_it(server: Server, stored: Path) -> None:
    for path in ("/", f"/run/{key_of(stored)}", f"/report/{key_of(stored)}?lang=zh"):
        assert EVIL.encode() not in server.ask(path).body


def test_a_run_that_cannot_be_read_is_told_and_disturbs_nobody(server: Server, stored: Path) -> None:
    broken = stored.parent / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text('{"schema": 99}')
    until(lambda: any(run["key"] == key_of(broken) for run in server.runs()))

    with closing(server.open(f"/api/run/{key_of(broken)}/events")) as answer:
        told = list(events(answer))

    assert [event.name for event in told] == ["trouble", "end"] and "schema 99" in told[0].value["why"]
    assert server.ask(f"/report/{key_of(broken)}").status == 404
    assert server.ask("/").status == 200


class _Reader(threading.Thread):
    """Reads one stream to its end."""

    def __init__(self, server: Server, path: str) -> None:
        super().__init__(daemon=True)
        self.told: list[Event] = []
        self._answer = server.open(path)
        self.start()

    def run(self) -> None:
        with closing(self._answer):
            for event in events(self._answer):
                self.told.append(event)

    def count(self, name: str) -> int:
        return sum(event.name == name for event in self.told)


def test_twenty_clients_follow_a_run_to_its_end_and_nothing_is_left(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=20)
    with serving(tmp_path) as server:
        process = psutil.Process(server.process.pid)
        server.ask("/api/runs")
        files = process.num_fds()

        readers = [_Reader(server, f"/api/run/{key_of(run.path)}/events") for _ in range(20)]
        until(lambda: all(reader.count("verdict") for reader in readers))
        run.second()
        run.second()
        until(lambda: all(reader.count("points") >= 1 for reader in readers))
        run.end()
        for reader in readers:
            reader.join(LIMIT_S)

        assert all(reader.told[-1].name == "end" for reader in readers)
        assert all(reader.told[-2].value["state"] == "finished" for reader in readers)
        steps = {
            event.value["now"]["steps"] for reader in readers for event in reader.told[-6:] if event.name == "points"
        }
        assert max(steps) == 22 * 20
        # Everybody is told the same, and is gone afterwards.
        assert len({json.dumps(reader.told[-3].value, sort_keys=True) for reader in readers}) == 1
        until(lambda: process.num_fds() <= files + 1)


def test_twenty_who_open_a_stored_run_together_all_get_it(server: Server, stored: Path) -> None:
    readers = [_Reader(server, f"/api/run/{key_of(stored)}/events") for _ in range(20)]
    for reader in readers:
        reader.join(LIMIT_S)

    assert all(reader.count("history") == reader.count("end") == 1 and reader.count("verdict") for reader in readers)


def test_a_dashboard_that_ends_before_the_run_says_so(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=2)
    with serving(tmp_path) as server:
        reader = _Reader(server, f"/api/run/{key_of(run.path)}/events")
        until(lambda: reader.count("history") == 1)
    reader.join(LIMIT_S)
    run.end()

    assert [event.name for event in reader.told[-3:]] == ["gone", "facts", "end"]


def test_a_client_that_does_not_read_is_let_go_and_the_others_go_on(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=880)
    with serving(tmp_path) as server, socket.socket() as slow:
        address = f"/api/run/{key_of(run.path)}/events"
        process = psutil.Process(server.process.pid)
        # Small buffers, so that what is sent soon waits in the server.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {server.cookie}\r\n\r\n".encode())
        good = _Reader(server, address)
        until(lambda: good.count("history") == 1)
        assert slow.getsockname() in _clients(process)

        # Whoever comes makes the server look again, so that time passes more quickly for those who are there.
        until(lambda: _visited(server, address) and slow.getsockname() not in _clients(process))

        told = good.count("points")
        run.second()
        until(lambda: good.count("points") > told)
        run.end()
        good.join(LIMIT_S)
        assert good.told[-1].name == "end"


def _clients(process: psutil.Process) -> set[tuple[str, int]]:
    return {tuple(one.raddr) for one in process.net_connections("tcp") if one.raddr}


def _visited(server: Server, address: str) -> bool:
    with closing(server.open(address)) as answer:
        return next(events(answer)).name == "facts"


def test_with_nobody_there_it_does_not_even_wake_up(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        process = psutil.Process(server.process.pid)

        until(lambda: _slept_through(process, 1.2))

        assert server.ask("/").status == 200, "it is only asleep"


def _slept_through(process: psutil.Process, seconds: float) -> bool:
    before = process.num_ctx_switches().voluntary
    time.sleep(seconds)
    return bool(process.num_ctx_switches().voluntary == before)


def test_clients_that_go_away_leave_nothing_behind(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=2)
    with serving(tmp_path) as server:
        process = psutil.Process(server.process.pid)
        server.ask("/api/runs")
        files = process.num_fds()

        for _ in range(10):
            assert _visited(server, f"/api/run/{key_of(run.path)}/events")

        until(lambda: process.num_fds() <= files + 1)
        run.end()
