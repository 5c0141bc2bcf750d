"""A live view of the training over TCP, and a small client that stands for the viewer's window.

The window asks for a picture from its own camera, shows it at its next refresh, and then lets training go on by
one step. Messages are JSON with a length before them; pictures are raw bytes with a length before them.
"""

from __future__ import annotations

import errno
import json
import math
import select
import socket
import struct
import threading
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splat.errors import UserError

_LENGTH = struct.Struct("<I")
_PORTS_TRIED = 64


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        parts += part
    return bytes(parts)


def _receive_block(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return _receive_exactly(connection, length)


def _send_block(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


class ViewerServer:
    """The trainer's end."""

    def __init__(self, port: int) -> None:
        self._listener = _listening(port)
        self.port: int = self._listener.getsockname()[1]
        self._connection: socket.socket | None = None
        self.paused = False

    def try_connect(self) -> None:
        """Take the viewer that waits, if one does."""
        if self._connection is None and select.select([self._listener], [], [], 0)[0]:
            self._connection, _ = self._listener.accept()
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def receive(self) -> dict[str, Any] | None:
        """Wait for the viewer's next message; None when it has gone, or is paused and silent."""
        assert self._connection is not None
        try:
            if self.paused and not select.select([self._connection], [], [], 0)[0]:
                return None
            message: dict[str, Any] = json.loads(_receive_block(self._connection))
        except (OSError, ValueError):
            self._drop()
            return None
        self.paused = bool(message.get("paused"))
        return message

    def send(self, image: Tensor) -> None:
        """Send a [3, h, w] picture in 0..1."""
        assert self._connection is not None
        pixels = (image.clamp(0, 1) * 255).byte().permute(1, 2, 0).contiguous().cpu().numpy()
        try:
            _send_block(self._connection, pixels.tobytes())
        except OSError:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        self._drop()
        self._listener.close()


def _listening(port: int) -> socket.socket:
    """A listener on the port, or on one of the next when another training holds it."""
    for candidate in range(port, min(port + _PORTS_TRIED, 65536)):
        listener = socket.socket()
        try:
            listener.bind(("127.0.0.1", candidate))
            listener.listen()
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"--port {port} cannot be used ({error}): choose another, or --viewer off") from None
    raise UserError(f"--port {port} and the {_PORTS_TRIED - 1} after it are taken: choose another, or --viewer off")


class ViewerWindow(threading.Thread):
    """The viewer's end: a window that orbits the head and refreshes so many times a second."""

    def __init__(self, port: int, side: int, refreshes_per_s: float, paused: bool) -> None:
        super().__init__(name="viewer-window", daemon=True)
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._side, self._interval_s, self._paused = side, 1 / refreshes_per_s, paused
        self.shown = 0
        self.picture: NDArray[np.uint8] | None = None

    def run(self) -> None:
        try:
            self._say(paused=self._paused, train=True)
            while not self._paused:
                self._show_one()
                self._say(train=True)
            # Rendering is paused: nothing is asked any more, the connection stays until the trainer ends.
            self._connection.recv(1)
        except OSError:
            pass  # the trainer has ended
        finally:
            self._connection.close()

    def _show_one(self) -> None:
        angle = 0.4 * math.sin(0.05 * self.shown)
        self._say(camera={"angle": angle, "side": self._side})
        data = _receive_block(self._connection)
        frame = np.frombuffer(data, dtype=np.uint8).reshape(self._side, self._side, 3)
        # A display shows a new picture at its refresh and not before.
        time.sleep(self._interval_s - time.monotonic() % self._interval_s)
        self.picture = np.ascontiguousarray(frame[:, ::-1])
        self.shown += 1

    def _say(self, **message: Any) -> None:
        _send_block(self._connection, json.dumps(message).encode())


def orbit_position(angle: float, distance: float) -> NDArray[np.float64]:
    """Where the viewer's camera is."""
    return np.array([math.sin(angle) * distance, 0.2, math.cos(angle) * distance])


def as_row(values: Any, device: torch.device) -> Tensor:
    """A batch of one."""
    return torch.tensor([values], dtype=torch.float32, device=device)
