"""Runs and code that have SY305, and that must stay quiet."""

from __future__ import annotations

from flatout.records.ledger import Ledger, LedgerEntry, Nature, Part
from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import HERE, Case, on_gpu, run


def _line(phase: str, ms: float) -> tuple[LineCost, ...]:
    return (LineCost(Location(HERE.file, HERE.line), "receive", phase, ms / 100, ms),)


def _seen(nature: Nature, part: Part) -> Ledger:
    return Ledger((LedgerEntry(HERE, "receive", "other", nature, False, 33.0, 0.33, 40.0, part),))


_MS = {"data": 1.0, "forward": 30.0, "backward": 25.0, "optimizer": 5.0, "other": 39.0}
_RECEIVE = {(HERE.file, HERE.line): "part = connection.recv(count)"}
_POLL = {(HERE.file, HERE.line): "ready = select.select([server], [], [], 0)[0]"}
CASES = (
    Case(
        "finds it when a viewer holds the step up",
        run(gpu=on_gpu(util_mean=30.0, drained_share=0.8), ms=_MS, all_lines=_line("other", 33.0), source=_RECEIVE),
        found=True,
    ),
    Case("finds it on a CPU", run(ms=_MS, all_lines=_line("other", 33.0), source=_RECEIVE), found=True),
    Case("quiet when it only polls", run(ms=_MS, all_lines=_line("other", 3.0), source=_POLL), found=False),
    Case(
        "quiet when that is how the batch is made",
        run(ms={**_MS, "data": 39.0, "other": 1.0}, all_lines=_line("data", 33.0), source=_RECEIVE),
        found=False,
    ),
    Case("finds it when the thread is asleep there", run(ms=_MS, ledger=_seen("pipe", "waiting")), found=True),
    Case(
        "quiet when the thread was not asleep there",
        run(ms=_MS, all_lines=_line("other", 33.0), source=_RECEIVE, ledger=_seen("native", "native")),
        found=False,
    ),
    Case("quiet when the line is not known", run(ms=_MS, all_lines=_line("other", 33.0)), found=False),
)

_LOOP = """
import os, subprocess, time
import psutil, requests
import torch.distributed as dist

def train(model, loader):
    for step, batch in enumerate(loader):
        model(batch).backward()
        optimizer.step()
        %s
"""
_VIEWER = """
import socket
listener = socket.socket()
listener.settimeout(0)
conn = None

def try_connect():
    global conn
    conn, address = listener.accept()

def receive():
    return conn.recv(4)  # found
"""
_VIEWED = """
import viewer
for camera in cameras:
    viewer.try_connect()
    viewer.receive()
    render(camera).backward()
    optimizer.step()
"""
_step = cases_in(_LOOP)
SOURCE_CASES = (
    _step("finds it when each step sleeps", "time.sleep(0.01)  # found"),
    _step(
        "finds it when each step runs a program", "subprocess.run(['nvidia-smi'])  # found", "os.system('x')  # found"
    ),
    _step("finds it when each step asks a server", "requests.post(url, json={'step': step})  # found"),
    _step("finds it when a meter waits for its clock", "cpu = psutil.cpu_percent(interval=0.1)  # found"),
    _step("finds it when the ranks wait for each other", "dist.barrier()  # found"),
    _step("finds it when somebody has to press a key", "input('next?')  # found"),
    SourceCase("finds it in a viewer that the step asks", {"train.py": _VIEWED, "viewer.py": _VIEWER}),
    _step("quiet when it is done now and then", "if step % 500 == 0:", "    requests.post(url)", "    dist.barrier()"),
    _step("quiet when it only polls", "cpu = psutil.cpu_percent(interval=None)", "time.sleep(0)"),
    _step("quiet when somebody else's run is meant", "session.run(batch)", "queue.get()", "cache.get('x')"),
    SourceCase("quiet when it is after the loop", _LOOP % "pass" + "    time.sleep(1)\n    dist.barrier()\n"),
    SourceCase(
        "quiet when input is a tensor's name",
        "def step(input, target):\n    criterion(input(3), target).backward()\n    optimizer.step()\n"
        "for x, y in loader:\n    step(x, y)\n",
    ),
)
