"""One reader for each run that somebody looks at, however many look."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flatout.dashboard.run_reader import RunReader
from flatout.launch.live import LiveVerdict
from flatout.records.report import RunReport
from flatout.report.dashboard import chinese_of
from flatout.report.json import to_json
from flatout.report.overview import spent_on
from flatout.words import english

# Between two looks: at least this long, and with wide bins, where there is less that is new, up to that long.
_LOOK_S, _LONGEST_LOOK_S = 3.0, 5.0
# Somebody new is served at once, but not each of twenty who come together by a look of his own.
_SHORTEST_S = 0.1
# A page that is loaded again finds the curves still there.
_LINGER_S = 20.0
_LAST_WORDS_S = 2.0
# Of a report, what the page shows.
_SHOWN = (
    "run",
    "throughput",
    "phases",
    "gpu",
    "verdict",
    "next",
    "findings",
    "overhead",
    "host",
    "workers",
    "notices",
    "machine",
)
_T = TypeVar("_T")
# Messages that may wait for one client; at one every few seconds, what is not read by then is read by nobody.
_MOST_WAITING = 8


class Hub:
    """Reads one run for all its clients, as long as there are any."""

    def __init__(self, path: Path, threads: Threads, on_idle: Callable[[], None]) -> None:
        self._path = path
        self._threads = threads
        self._on_idle = on_idle
        self._clients: set[Client] = set()
        self._wake = asyncio.Event()
        self._reading: RunReader | None = None
        self._judging = LiveVerdict(path)
        self._verdict = b""
        self._is_final = False
        self._judged: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._follow())

    def join(self, client: Client) -> None:
        self._clients.add(client)
        self._wake.set()

    def part(self, client: Client) -> None:
        client.leave()
        self._clients.discard(client)

    async def close(self) -> None:
        """Tell the clients how it ended, and stop."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._reading is not None and self._clients:
            self._reading.look_at_state_next()
            # Nobody waits for the end of a server longer than this.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._last_look(), _LAST_WORDS_S)
        is_over = self._reading is not None and self._reading.state != "running"
        self._end(list(self._clients), b"" if is_over else event_bytes("gone", {}))

    async def _last_look(self) -> None:
        await self._look()
        if self._reading is not None and self._reading.state != "running":
            await self._conclude()

    async def _follow(self) -> None:
        try:
            self._reading = await _in(self._threads.reader, lambda: RunReader(self._path))
            while True:
                if self._clients:
                    await self._serve()
                if not await self._wait_to_be_woken() and not self._clients:
                    break
        except Exception as error:
            # Deleted while it was shown, or damaged: said on the page, and the others go on.
            self._end(list(self._clients), event_bytes("trouble", {"why": f"{type(error).__name__}: {error}"}))
        self._on_idle()

    async def _wait_to_be_woken(self) -> bool:
        """Wait until somebody comes or it is time to look again. Where nobody is, there is nothing to look for."""
        assert self._reading is not None
        look_s = min(max(_LOOK_S, self._reading.bin_s), _LONGEST_LOOK_S)
        try:
            async with asyncio.timeout(look_s if self._clients else _LINGER_S):
                await self._wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(_SHORTEST_S)
        self._wake.clear()
        return True

    async def _serve(self) -> None:
        reading = self._reading
        assert reading is not None
        await self._look()
        if reading.state != "running":
            await self._conclude()
            # Who has come meanwhile has not been told anything yet: it is his turn next.
            self._end([client for client in self._clients if not client.is_new])
        elif self._judging.is_due(reading.steps) and (self._judged is None or self._judged.done()):
            self._judged = asyncio.create_task(self._judge())

    async def _look(self) -> None:
        reading = self._reading
        assert reading is not None
        new = [client for client in self._clients if client.is_new]
        told, history = await _in(self._threads.reader, lambda: _look(reading, bool(new)))
        first = event_bytes("facts", reading.facts()) + history + self._verdict if new else b""
        for client in self._clients:
            if client in new:
                client.is_new = False
                client.give(first)
            elif not client.is_new:
                client.give(told)

    async def _conclude(self) -> None:
        """The last verdict; a run that has ended is judged once."""
        if self._judged is not None:
            await self._judged
        if not self._is_final:
            await self._judge()
            self._is_final = True

    async def _judge(self) -> None:
        report = await _in(self._threads.judge, self._judging.judge)
        if report is not None:
            self._verdict = event_bytes("verdict", verdict_of(report))
            self._tell(self._verdict)

    def _tell(self, what: bytes) -> None:
        for client in list(self._clients):
            if not client.is_new:
                client.give(what)

    def _end(self, clients: Sequence[Client], last: bytes = b"") -> None:
        if self._reading is not None:
            last += event_bytes("facts", self._reading.facts())
        for client in clients:
            client.give(last + event_bytes("end", {}))
            self.part(client)


def _look(reading: RunReader, with_history: bool) -> tuple[bytes, bytes]:
    """In a thread: what is new for those who are there, and all of it for those who have just come."""
    told = event_bytes("points", reading.look())
    return told, event_bytes("history", reading.history()) if with_history else b""


def verdict_of(report: RunReport) -> dict[str, Any]:
    whole = to_json(report)
    shown = {name: whole[name] for name in _SHOWN}
    parts = [(english(part), share) for part, share in spent_on(report)]
    return {**shown, "spent_on": parts, "chinese": chinese_of(report)}


@dataclass(frozen=True, slots=True)
class Threads:
    """Reading is quick and comes first; judging has a thread of its own, so that nobody waits for it."""

    reader: ThreadPoolExecutor
    judge: ThreadPoolExecutor


async def _in(thread: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


class Hubs:
    """The hubs of all runs that are looked at."""

    def __init__(self) -> None:
        self._hubs: dict[Path, Hub] = {}
        self._threads = Threads(*(ThreadPoolExecutor(1, f"flatout-{name}") for name in ("reader", "judge")))

    def join(self, path: Path, client: Client) -> Hub:
        hub = self._hubs.get(path)
        if hub is None:
            hub = self._hubs[path] = Hub(path, self._threads, lambda: self._forget(path))
        hub.join(client)
        return hub

    def _forget(self, path: Path) -> None:
        self._hubs.pop(path, None)

    def __len__(self) -> int:
        return len(self._hubs)

    async def close(self) -> None:
        await asyncio.gather(*(hub.close() for hub in list(self._hubs.values())))
        self._hubs.clear()
        for thread in (self._threads.reader, self._threads.judge):
            thread.shutdown(wait=False, cancel_futures=True)


# Who looks at a run: everyone gets the same bytes, and one who does not keep up is let go.


class Client:
    """One open stream. `let_go` ends its connection at once, also when it does not read."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._let_go = let_go
        self.is_new = True
        self.is_gone = False

    def give(self, message: bytes) -> None:
        if self.is_gone:
            return
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.leave()
            self._let_go()

    def leave(self) -> None:
        """The stream ends when it has sent what is waiting; nothing more is taken in."""
        self.is_gone = True
        if not self._waiting.full():
            self._waiting.put_nowait(None)

    async def next(self) -> bytes | None:
        """The next message; None when the stream is to end."""
        if self.is_gone and self._waiting.empty():
            return None
        return await self._waiting.get()


def event_bytes(event: str, value: Any) -> bytes:
    """One server-sent event. JSON has no line breaks of its own, so it is one line."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return f"event: {event}\ndata: {text}\n\n".encode()
