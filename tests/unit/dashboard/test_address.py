"""Where the dashboard listens, and where it refuses to."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from flatout.dashboard.address import listen
from flatout.errors import FlatoutError


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "", "::", "127.0.0.1.evil.org"])
def test_it_listens_on_no_other_machines_behalf(host: str) -> None:
    with pytest.raises(FlatoutError, match=r"--host must be .*ssh -N -L"):
        listen(host, 0)


def test_it_listens_on_loopback_with_a_token_of_its_own() -> None:
    first, second = listen("127.0.0.1", 0), listen("localhost", 0)

    with first.socket, second.socket:
        assert first.socket.getsockname()[0] == second.socket.getsockname()[0] == "127.0.0.1"
        assert first.token != second.token and len(first.token) >= 43
        assert f"ssh -N -L {first.port}:127.0.0.1:{first.port} " in first.invitation()
        assert first.url("/run/x") == f"http://127.0.0.1:{first.port}/run/x?token={first.token}"


def test_a_port_that_is_taken_is_said_plainly() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(FlatoutError, match=f"--port {port} cannot be used"):
            listen(port=port)


def test_without_a_wish_any_free_port_will_do() -> None:
    first = listen()
    with first.socket:
        second = listen()
        with second.socket:
            assert second.port != first.port


@pytest.mark.parametrize("port", [-1, 65536])
def test_no_such_port(port: int) -> None:
    with pytest.raises(FlatoutError, match=f"between 0 and 65535, got {port}"):
        listen(port=port)


def test_without_the_libraries_one_line_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(FlatoutError, match=r"needs starlette and uvicorn: pip install 'flatout\[serve\]'"):
        listen()
