"""Where the dashboard listens: on this machine only, behind a token that nobody can guess."""

from __future__ import annotations

import getpass
import importlib.util
import ipaddress
import secrets
import socket
from dataclasses import dataclass

from flatout.errors import FlatoutError

FIRST_PORT = 8765
_MORE_PORTS = 10
_HELD_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Address:
    """A socket that listens already, and the token that opens it."""

    socket: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def url(self, path: str = "/") -> str:
        host = self.socket.getsockname()[0]
        return f"http://{_bracketed(host)}:{self.port}{path}?token={self.token}"

    def invitation(self, path: str = "/") -> str:
        """What to tell the user: the address, and how to reach it from elsewhere."""
        tunnel = f"ssh -N -L {self.port}:{_bracketed(self.socket.getsockname()[0])}:{self.port} {_login()}"
        return f"flatout: dashboard at {self.url(path)}\nflatout: from another machine: {tunnel}\n"


def listen(host: str = "127.0.0.1", port: int | None = None) -> Address:
    """Take a port of this machine: `port`, or the first free one of ours."""
    need_libraries()
    wanted = FIRST_PORT if port is None else port
    if not 0 <= wanted <= 65535:
        raise FlatoutError(f"--port must be between 0 and 65535, got {port}")
    if not _is_loopback(host):
        raise FlatoutError(
            f"--host must be an address of this machine alone (127.0.0.1, ::1, localhost), got {host!r}; "
            f"from another one: ssh -N -L {wanted}:127.0.0.1:{wanted} {_login()}"
        )
    host = "127.0.0.1" if host == "localhost" else host
    # Without a wish, one that is taken is no reason to fail: the next, and at last any.
    tries = [wanted] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _MORE_PORTS), 0]
    for number in tries:
        try:
            return Address(_bound(host, number), secrets.token_urlsafe(32))
        except OSError as error:
            trouble = error
    raise FlatoutError(
        f"--port {wanted} cannot be used ({trouble.strerror or trouble}): give another, or leave it away"
    )


def need_libraries() -> None:
    """Raises FlatoutError that says how to get what is missing."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise FlatoutError(f"the dashboard needs {' and '.join(missing)}: pip install 'flatout[serve]'")


def _bound(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port that we left a moment ago is ours again at once.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What the kernel holds for a client that does not read stays small; connections take this over.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _HELD_BYTES)
        made.bind((host, port))
        made.listen(64)
    except OSError:
        made.close()
        raise
    return made


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _login() -> str:
    """Who would log in here, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "user"  # a container may run a number that has no name
    return f"{user}@{socket.gethostname()}"
