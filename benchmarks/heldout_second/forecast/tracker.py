"""Tells the experiment tracker how the run is going, over a socket."""

# mypy: ignore-errors

import json
import socket
import threading
import time


class TrackerService(threading.Thread):
    """The other end, on this host: stores a message and acknowledges it."""

    def __init__(self, delay: float = 0.02):
        super().__init__(daemon=True)
        self.delay = delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()

    def run(self):
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as lines:
            for _ in lines:
                time.sleep(self.delay)
                connection.sendall(b"ok\n")


class Tracker:
    def __init__(self, address, every: int):
        self.every = every
        self.socket = socket.create_connection(address)

    def report(self, step: int, **values: float) -> None:
        if step % self.every:
            return
        self.socket.sendall(json.dumps({"step": step, **values}).encode() + b"\n")
        answer = self.socket.recv(64)  # guilty
        if not answer.startswith(b"ok"):
            raise ConnectionError(f"the tracker answered {answer!r}")

    def close(self):
        self.socket.close()
