"""What tests of the dashboard share: a server as the user starts it, plain requests to it, and a run that grows."""

from __future__ import annotations

import http.client
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any

from flatout.records.sample import CgroupSample, GpuSample, HostSample
from flatout.store.manifest import write_manifest
from flatout.store.rows import RowWriter
from flatout.telemetry.sampling import columns, row
from tests.integration.running import ENVIRON
from tests.unit.making import MS, Making, body

LIMIT_S = 30.0
GIB = 2.0**30


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes


@dataclass
class Server:
    """A dashboard that listens. `cookie` is what the token was exchanged for."""

    process: subprocess.Popen[str]
    port: int
    token: str
    path: str
    tunnel: str
    cookie: str = field(default="")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}?token={self.token}"

    def ask(self, path: str, method: str = "GET", known: bool = True, **headers: str) -> Answer:
        """One request, spelt exactly as it is given, and its whole answer. Underscores of header names are dashes."""
        with closing(self.open(path, method, known, **headers)) as answer:
            return Answer(answer.status, answer.headers, answer.read())

    def open(self, path: str, method: str = "GET", known: bool = True, **headers: str) -> http.client.HTTPResponse:
        """The same for an answer that goes on; to be closed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
        # The answer takes the connection over: closing it closes both.
        connection.putheader("Connection", "close")
        for name, value in (({"Cookie": self.cookie} if known else {}) | named).items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse()

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("/api/runs").body)["runs"]
        return found


def greeted(process: subprocess.Popen[str]) -> Server:
    """Read the address that a server has printed, and exchange its token."""
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\S*)\?token=(\S+)", said)
    assert found, said
    server = Server(process, int(found[1]), found[3], found[2], process.stderr.readline())
    answer = server.ask(f"/?token={server.token}", known=False)
    server.cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
    return server


@contextmanager
def serving(root: Path, *options: str) -> Iterator[Server]:
    """`flatout serve` on a free port, ended afterwards."""
    words = [sys.executable, "-m", "flatout", "serve", "--port", "0", "--root", str(root), *options]
    process = subprocess.Popen(words, cwd=root, env=ENVIRON, stderr=subprocess.PIPE, text=True)
    try:
        yield greeted(process)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        assert process.stderr is not None
        process.stderr.close()


@dataclass(frozen=True)
class Event:
    name: str
    value: Any


def events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    """Server-sent events as they come, until the stream ends or is closed."""
    name = ""
    for line in answer:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            yield Event(name, json.loads(text[6:]))


class GrowingRun:
    """A run on a GPU that waits for its data, written as a watched script writes it: second by second, on demand."""

    def __init__(self, root: Path, argv: tuple[str, ...] = ("train.py",), seconds: int = 0) -> None:
        self.making = Making(root, argv)
        self.making.manifest = replace(self.making.manifest, started_unix_s=time.time() - seconds)
        write_manifest(self.path, self.making.manifest)
        # The recording began so long ago that what is written first lies in the past. A machine that is younger than
        # that has no such time: there, what is written last lies ahead.
        start_ns = max(0, time.monotonic_ns() - (seconds + 1) * 1000 * MS)
        self.process = self.making.process(start_ns=start_ns, start_unix_ns=time.time_ns())
        self.process.text("torch", {"version": "2.11.0", "device_name": "NVIDIA H200"})
        folder = self.making.directory.work / "telemetry"
        self._writers = {name: RowWriter(folder / f"{name}.rows", columns(name)) for name in ("gpu", "host", "cgroup")}
        self._second = 0
        for _ in range(seconds):
            self.second()

    @property
    def path(self) -> Path:
        return self.making.directory.path

    def second(self) -> None:
        """One more second: 20 steps of 50 ms, and what was sampled beside them."""
        wave = math.sin(self._second / 7)
        waits = 0.55 + 0.15 * wave
        t_s = self.process.now_ns * 1e-9
        samples = {
            "gpu": GpuSample(
                0,
                util_percent=100 * (1 - waits),
                power_w=200 + 300 * (1 - waits),
                power_limit_w=700,
                sm_active_share=0.8 * (1 - waits),
                tensor_active_share=0.3 * (1 - waits),
                memory_used_bytes=31 * GIB,
                memory_total_bytes=80 * GIB,
            ),
            "host": HostSample(memory_available_bytes=300 * GIB, memory_total_bytes=512 * GIB),
            "cgroup": CgroupSample(
                memory_limit_bytes=64 * GIB, memory_current_bytes=(30 + 4 * wave) * GIB, memory_cache_bytes=6 * GIB
            ),
        }
        for name, sample in samples.items():
            self._writers[name].append(row(name, t_s, sample))
        phases = {"data": waits, "h2d": 0.03, "forward": 0.14, "backward": 0.1, "optimizer": 0.02}
        for _ in range(20):
            self.process.step(50.0, phases, queue=1 if wave > 0 else 0)
        # One step a second is timed on the device as well.
        times_ms = (50 * waits, 9.0, 8.0, 1.0, 32 - 50 * waits, 50.0)
        self.process.append(body("device", self.process.index, *times_ms, 3, 3))
        self._second += 1

    def end(self, exit_code: int = 0) -> None:
        self.process.end()
        for writer in self._writers.values():
            writer.close()
        self.making.stored(exit_code, wall_s=float(self._second))
