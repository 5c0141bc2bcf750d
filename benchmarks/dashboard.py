"""What the dashboard costs a training run: without it, with nobody looking, with one client and with twenty.

    python -m benchmarks.dashboard                   10 ms steps on the CPU
    python -m benchmarks.dashboard --device cuda     on a GPU
    python -m benchmarks.dashboard --gate            exit 1 if a bar is missed

Every arm of every round is a fresh `flatout run` of the same script, alternating; the script times blocks of its own
steps, by the clock and in CPU time of its thread. Beside that, the CPU time of the dashboard's process is read while
clients look: where the training and the dashboard had to share a single core, that is the most it could cost.

The clients run on the same machine and take of its cores what browsers elsewhere would not. So the clock tells what all
of it costs here, and the dashboard's own CPU time what it costs anywhere; the clients' is told beside them.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.common import child, results, steps
from benchmarks.common.alternate import alternate
from benchmarks.common.stats import Estimate, added_percent, estimate

ARMS = {"run": None, "serve": 0, "serve+1": 1, "serve+20": 20}
LIMIT_PERCENT = 0.2
# The dashboard, of one core.
LIMIT_CORE_PERCENT = {"serve": 0.05, "serve+1": 0.2, "serve+20": 0.5}
# Twenty clients against one.
LIMIT_RATIO = 2.5
_SETTLE_S = 1.0
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: the script's own step time, and CPU time per second of dashboard and clients, in percent of a core.

    `start_cpu_s` is what the dashboard took until the first verdict was shown, `end_cpu_s` what after the last step.
    """

    us_per_step: float
    cpu_us_per_step: float
    core_percent: float | None = None
    clients_core_percent: float | None = None
    start_cpu_s: float | None = None
    end_cpu_s: float | None = None
    rss_mb: float | None = None
    events: int = 0


class Clients(threading.Thread):
    """So many open streams, read by one thread that looks at nothing but the ends of events."""

    def __init__(self, port: int, path: str, cookie: str, count: int) -> None:
        super().__init__(daemon=True)
        self.events = 0
        self.verdicts = 0
        self._ready = selectors.DefaultSelector()
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode()
        for _ in range(count):
            stream = socket.create_connection(("127.0.0.1", port))
            stream.sendall(request)
            stream.setblocking(False)
            self._ready.register(stream, selectors.EVENT_READ)
        self.start()

    def cpu_s(self) -> float:
        """What this thread has taken; nothing once it has ended."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.ident)) if self.ident and self.is_alive() else 0.0

    def run(self) -> None:
        while self._ready.get_map():
            for key, _ in self._ready.select():
                assert isinstance(key.fileobj, socket.socket)
                try:
                    data = key.fileobj.recv(1 << 16)
                except ConnectionError:
                    data = b""
                self.events += data.count(b"event: ")
                self.verdicts += data.count(b"event: verdict")
                if not data:
                    self._ready.unregister(key.fileobj)
                    key.fileobj.close()


def entered(port: int, token: str) -> str:
    """The cookie for the token."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        request = f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    found = re.search(rb"set-cookie: ([^;]+);", answer)
    assert found, answer
    return found[1].decode()


def command(step: steps.Step, out: Path, with_dashboard: bool) -> list[str]:
    flags = ["--serve", "--port", "0"] if with_dashboard else []
    watch = [sys.executable, "-m", "flatout", "run", "--out", "run", "--quiet", *flags, "--"]
    return [*watch, sys.executable, str(steps.TRAINING), *step.arguments(out, "bare")]


def measure(arm: str, step: steps.Step) -> Measured:
    """One run in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        out = Path(folder, "timing.json")
        clients = ARMS[arm]
        if clients is None:
            child.run(command(step, out, with_dashboard=False), cwd=Path(folder))
            return Measured(steps.median_us(out), steps.median_us(out, "cpu_us_per_step"))
        process = subprocess.Popen(
            command(step, out, with_dashboard=True), cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            env=child.environment(), text=True,
        )  # fmt: skip
        account = _watched(process, clients, out)
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(f"exit {process.returncode}: {said[-3000:]}")
        return replace(
            account, us_per_step=steps.median_us(out), cpu_us_per_step=steps.median_us(out, "cpu_us_per_step")
        )


def _watched(process: subprocess.Popen[str], count: int, out: Path) -> Measured:
    """Read the dashboard's CPU time until the script has written `out`, and then until the run is over."""
    assert process.stderr is not None
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\S+)\?token=(\S+)", process.stderr.readline())
    assert found, "no address was printed"
    port = int(found[1])
    dashboard = _dashboard(process.pid)
    cookie = entered(port, found[3])
    clients = Clients(port, f"/api{found[2]}/events", cookie, count)
    # The first verdict loads the catalogue: that is part of the start, and is told apart.
    while count and not clients.verdicts and process.poll() is None:
        time.sleep(_LOOK_S)
    time.sleep(_SETTLE_S)
    start_cpu_s, start_s, clients_start_s = _cpu_s(dashboard), time.perf_counter(), clients.cpu_s()
    cpu_s, at_s, clients_s, rss = start_cpu_s, start_s, clients_start_s, 0
    end_cpu_s = cpu_s
    while process.poll() is None:
        time.sleep(_LOOK_S)
        try:
            end_cpu_s = _cpu_s(dashboard)
            rss = max(rss, dashboard.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        # What comes after the training is its last verdict, once.
        if not out.exists():
            cpu_s, at_s, clients_s = end_cpu_s, time.perf_counter(), max(clients_s, clients.cpu_s())
    clients.join(10.0)
    per_s = 100 / (at_s - start_s)
    return Measured(
        us_per_step=0.0,
        cpu_us_per_step=0.0,
        core_percent=per_s * (cpu_s - start_cpu_s),
        clients_core_percent=per_s * (clients_s - clients_start_s),
        start_cpu_s=start_cpu_s,
        end_cpu_s=end_cpu_s - cpu_s,
        rss_mb=rss / 1e6,
        events=clients.events,
    )


def _dashboard(parent: int) -> psutil.Process:
    deadline_s = time.perf_counter() + 30
    while time.perf_counter() < deadline_s:
        for one in psutil.Process(parent).children():
            if any("serving.companion" in word for word in one.cmdline()):
                return one
        time.sleep(0.02)
    raise SystemExit("the dashboard did not start")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Costs:
    """All arms against the run without a dashboard."""

    us_per_step: dict[str, float]
    added_percent: dict[str, Estimate]
    # In CPU time of the training's own thread.
    added_cpu_percent: dict[str, Estimate]
    core_percent: dict[str, Estimate]
    clients_core_percent: dict[str, float]
    start_cpu_s: float
    end_cpu_s: float
    rss_mb: float
    events: dict[str, int]
    rounds: int

    @property
    def ratio(self) -> float:
        """What twenty clients cost against one."""
        return self.core_percent["serve+20"].mid / self.core_percent["serve+1"].mid


def costs(timings: dict[str, list[Measured]]) -> Costs:
    us = {arm: [one.us_per_step for one in ones] for arm, ones in timings.items()}
    cpu_us = {arm: [one.cpu_us_per_step for one in ones] for arm, ones in timings.items()}
    others = [arm for arm in timings if arm != "run"]
    cores = {arm: [timing.core_percent for timing in timings[arm] if timing.core_percent is not None] for arm in others}
    # Without a client nothing is judged.
    served = [timing for arm in others if ARMS[arm] for timing in timings[arm]]
    return Costs(
        us_per_step={arm: statistics.median(values) for arm, values in us.items()},
        added_percent={arm: added_percent(us[arm], us["run"]) for arm in others},
        added_cpu_percent={arm: added_percent(cpu_us[arm], cpu_us["run"]) for arm in others},
        core_percent={arm: estimate(values) for arm, values in cores.items()},
        clients_core_percent={
            arm: statistics.median(timing.clients_core_percent or 0.0 for timing in timings[arm]) for arm in others
        },
        start_cpu_s=statistics.median(one.start_cpu_s for one in served if one.start_cpu_s is not None),
        end_cpu_s=statistics.median(one.end_cpu_s for one in served if one.end_cpu_s is not None),
        rss_mb=max(one.rss_mb for one in served if one.rss_mb is not None),
        events={arm: sum(timing.events for timing in timings[arm]) for arm in others},
        rounds=len(us["run"]),
    )


def failures(c: Costs) -> list[str]:
    """The bars that were missed.

    What the dashboard takes is measured far more finely than what a step takes, so that decides. The step's time
    counts where all of its interval lies above the bar: what a noisy machine cannot tell neither passes nor fails.
    """
    found = []
    for name, all_added in (("", c.added_percent), (" of CPU time", c.added_cpu_percent)):
        for arm, percent in all_added.items():
            if percent.low > LIMIT_PERCENT:
                found.append(f"{arm} adds at least {percent.low:.2f}%{name} to a step, more than {LIMIT_PERCENT:g}%")
    for arm, percent in c.core_percent.items():
        limit = LIMIT_CORE_PERCENT[arm]
        if percent.mid > limit:
            found.append(f"{arm} takes {percent.mid:.2f}% of a core, more than {limit:g}%")
    if c.ratio > LIMIT_RATIO:
        found.append(f"twenty clients cost {c.ratio:.1f} times one, more than {LIMIT_RATIO:g}")
    if not all(c.events[arm] for arm in ("serve+1", "serve+20")):
        found.append("the clients were told nothing")
    return found


def page(c: Costs, step: steps.Step, missed: list[str]) -> str:
    rows = [["run", f"{c.us_per_step['run']:.1f}", *[""] * 5]]
    for arm in c.added_percent:
        core = c.core_percent[arm]
        rows.append(
            [
                arm,
                f"{c.us_per_step[arm]:.1f}",
                _with_interval(c.added_percent[arm]),
                _with_interval(c.added_cpu_percent[arm]),
                f"{core.mid:.2f}% ({core.smallest:.2f} to {core.largest:.2f})",
                f"{c.clients_core_percent[arm]:.2f}%",
                f"{c.events[arm]:,}",
            ]
        )
    head = [
        "arm",
        "µs per step",
        "added to a step, 95% interval",
        "added to its CPU time",
        "dashboard's CPU, of one core (range)",
        "clients' CPU",
        "events read",
    ]
    lines = [
        f"## {step.name} step on {step.device}, {c.rounds} rounds\n",
        results.table(head, rows),
        f"Twenty clients cost {c.ratio:.2f} times one. Until the first verdict is shown it takes {c.start_cpu_s:.2f} s "
        f"of CPU time and after the last step {c.end_cpu_s:.2f} s, both once; it holds {c.rss_mb:.0f} MB at most.\n",
        *(f"Missed: {sentence}." for sentence in missed),
        *([] if missed else ["All bars reached."]),
    ]
    return "\n".join(lines) + "\n"


def _with_interval(percent: Estimate) -> str:
    return f"{percent.mid:+.2f}% ({percent.low:+.2f} to {percent.high:+.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0, help="of training in each run (default: 40)")
    parser.add_argument("--step", choices=steps.KINDS, default="10ms")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        step = steps.make(o.step, o.device, Path(folder))
        # A calibrated step is timed for two seconds: too short for a dashboard to show what it costs.
        step = replace(step, blocks=round(step.blocks * o.seconds / 2))
    timings = alternate(
        list(ARMS), o.rounds, lambda arm, _: measure(arm, step),
        lambda m: f"{m.us_per_step:9.1f} us/step  core {m.core_percent or 0:.2f}%  {m.events} events",
    )  # fmt: skip
    found = costs(timings)
    missed = failures(found)
    text = page(found, step, missed)
    print(text)
    data = {"versions": results.versions("torch", "flatout", "starlette", "uvicorn"), "costs": found, "missed": missed}
    print(f"written: {results.write('dashboard', data, text, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
