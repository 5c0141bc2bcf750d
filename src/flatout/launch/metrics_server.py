"""`--metrics-port`: the live figures for Prometheus, over HTTP on this machine only.

It runs beside the training, in flatout's own process. Figures are worked out when they are asked for: it costs
nothing while nobody asks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from flatout import __version__
from flatout.errors import FlatoutError
from flatout.launch.live import Follower, complete_tick
from flatout.records.sample import Tick
from flatout.report.prometheus import CONTENT_TYPE, exposition

_HOST = "127.0.0.1"
_PATH = "/metrics"
# A client that says nothing, and how many are listened to at once.
_PATIENCE_S = 5.0
_MOST_AT_ONCE = 8
_NAMES = {_HOST, "localhost", "[::1]"}
_PORT = re.compile(r":\d*$")


class MetricsServer:
    """Listens from the start; `start` tells it which run, `on_tick` what was sampled last."""

    def __init__(self, port: int) -> None:
        if not 0 <= port <= 65535:
            raise FlatoutError(f"--metrics-port must be 0 (any free one) to 65535, got {port}")
        try:
            self._server = _Server((_HOST, port), _handler(self.page))
        except OSError as error:
            words = error.strerror or error
            raise FlatoutError(f"--metrics-port {port}: cannot listen there ({words}); 0 takes a free one") from error
        self.address = f"http://{_HOST}:{self._server.server_address[1]}{_PATH}"
        self._lock = threading.Lock()
        self._follower: Follower | None = None
        self._tick: Tick | None = None
        self._info = {"version": __version__}
        self._thread: threading.Thread | None = None

    def start(self, run: str | None = None, proc_dir: Path | None = None) -> None:
        """Answer from now on, about this run if there is one."""
        if run is not None and proc_dir is not None:
            self._info["run"] = run
            self._follower = Follower(proc_dir)
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.2,), name="flatout-metrics", daemon=True)
        self._thread.start()

    def on_tick(self, tick: Tick) -> None:
        self._tick = complete_tick(tick, self._tick)

    def page(self) -> str:
        # One at a time: two readers of one tail would each see half of it.
        with self._lock:
            figures = None if self._follower is None else self._follower.figures(None)
            return exposition(figures, self._tick, self._info)

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(2.0)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A thread for each client, a few of them at most: more are turned away."""

    daemon_threads = True
    block_on_close = False
    # A script that ended a moment ago must not keep the next one from its port.
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news, and the terminal is the script's."""


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S
        server_version = "flatout"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            code, text = self._result()
            data = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if with_body:
                with suppress(OSError):
                    self.wfile.write(data)

        def _result(self) -> tuple[int, str]:
            # A page of a foreign site that was made to resolve to this machine sends its own name along.
            if _PORT.sub("", self.headers.get("Host", "")) not in _NAMES:
                return 403, "only for this machine\n"
            if self.path.partition("?")[0] != _PATH:
                return 404, f"only {_PATH} is here\n"
            try:
                return 200, page()
            except Exception as error:
                # A figure that fails must not disturb the run.
                return 500, f"not now: {type(error).__name__}\n"

        def log_message(self, *_: object) -> None:
            """The terminal is the script's."""

    return Handler
