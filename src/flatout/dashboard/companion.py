"""The dashboard that goes along with `flatout run --serve`, in a process of its own.

Never in the training's process, and not in the one that watches it either: that one samples by the clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from flatout.dashboard.address import Address
from flatout.dashboard.run_list import RunList, key_of

_STDIN = 0
# Where this flatout is, installed or not.
_PACKAGES = str(Path(__file__).resolve().parents[2])
# Less than a tenth of a contended core, and still enough to start within seconds where all of them are busy.
_NICE = 10


class Companion:
    """This side of it. It ends when it is told to, or when this process is gone."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None

    def invitation(self, path: Path) -> str:
        return self._address.invitation(f"/run/{key_of(path)}")

    def start(self, path: Path) -> None:
        """Show the run at `path`. What it has to know goes by a pipe: the token is in no list of processes."""
        listening = self._address.socket
        already = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        order = {"fd": listening.fileno(), "token": self._address.token, "path": str(path.absolute())}
        try:
            self._process = subprocess.Popen(
                # -P: no file of the user's that lies here takes the place of a library.
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(listening.fileno(),),
                env={**os.environ, "PYTHONPATH": os.pathsep.join([_PACKAGES, *already])},
                # Ctrl-C is for the script. A group of its own, not a session: the kernel shares cores out by session,
                # so in one of its own it would not give way.
                process_group=0,
            )
        finally:
            listening.close()
        give_way(self._process.pid)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """The run has ended and its verdict is stored. The dashboard says so and goes; nobody waits for it."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed
                self._process.stdin.close()


def accompany() -> None:
    """The other side: show one run until the pipe is closed."""
    order = json.loads(_line())
    from flatout.dashboard.server import serve

    give_way()
    address = Address(socket.socket(fileno=order["fd"]), order["token"])
    serve(address, RunList(only=Path(order["path"])), until=_until_closed)


def _line() -> bytes:
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(_STDIN, 1)
        if not more:
            raise SystemExit(0)  # whoever started us is gone already
        text += more
    return text


def _until_closed() -> None:
    while os.read(_STDIN, 1):
        pass


# The training comes first, wherever it and the dashboard want the same core.


def give_way(pid: int = 0) -> None:
    """Lower the priority of a process of ours (0: this one)."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, max(_NICE, os.getpriority(os.PRIO_PROCESS, pid)))
    except OSError:
        pass  # it has ended


if __name__ == "__main__":
    accompany()
