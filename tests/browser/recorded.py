"""Runs to make pages of: one with everything that a report can show, and one of a million steps."""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from flatout.attach import wire
from flatout.store.run import StoredRun
from tests.unit.making import MS, Making, body

STEPS = 200
_PHASES = {"data": 0.5, "h2d": 0.02, "forward": 0.2, "backward": 0.2, "optimizer": 0.05}
_SCRIPT = """\
import torch


def main():
    for batch in loader:
        loss = model(batch)
        print(loss.item())
"""


def whole_run(root: Path, argv: tuple[str, ...] = ("train.py",), function: str = "main") -> StoredRun:
    """A run on a GPU with lines, a sync, an evaluation, a checkpoint, telemetry and two processes."""
    script = root / "train.py"
    script.write_text(_SCRIPT)
    # As it was before the run began, by the clock of `Making`.
    os.utime(script, (500.0, 500.0))
    making = Making(root / "runs", argv)
    process = making.process(pid=100)
    process.text("torch", {"version": "2.11.0", "device_name": "NVIDIA H200", "training_loaders": [1]})
    loader = {"id": 1, "file": str(script), "line": 5, "class": "DataLoader", "num_workers": 0, "batch_size": 32}
    process.text("loader", loader)
    for number in range(STEPS):
        start_ns = process.now_ns
        process.step(100.0 + 10 * math.sin(number / 9), _PHASES, queue=number % 3)
        process.append(body("device", process.index, 50.0, 20.0, 20.0, 5.0, 5.0, 100.0, 4, 1))
        if number in (80, 160):
            process.append(body("span", wire.EVAL, start_ns, start_ns + 400 * MS, -1))
            process.append(body("span", wire.CHECKPOINT, start_ns + 500 * MS, start_ns + 600 * MS, -1))
    fetching = (1, -1, 5_000 * MS, process.now_ns, STEPS, 32 * STEPS, 50 * MS * STEPS, MS * STEPS, 60 * MS, 0)
    process.append(body("fetch", *fetching))
    process.text("site", {"id": 1, "op": "item", "file": str(script), "line": 7, "function": function})
    process.append(body("site", 1, STEPS, 2 * MS * STEPS, 3 * MS, 0, 0, 0, 0))
    process.end()
    lines = making.lines(pid=100)
    lines.text("line", {"id": 1, "file": str(script), "line": 6, "function": function})
    lines.append(body("line", 1, wire.FORWARD, 400, 4.0, 2, 0, 0))
    lines.end()
    _telemetry(making)
    stored = making.stored(environment={"cpus": 8, "memory_bytes": 64 << 30, "host": "box"})
    return StoredRun(stored.path)


def _telemetry(making: Making) -> None:
    moments = [5.0 + 0.5 * n for n in range(42)]
    gpu = ("t_s", "gpu", "util_percent", "power_w", "power_limit_w", "own_memory_bytes", "memory_used_bytes")
    gpu += ("memory_total_bytes", "sm_active_share", "tensor_active_share")
    making.rows("gpu", gpu, [(t, 0, 40 + 10 * math.sin(t), 300, 700, 5e9, 6e9, 8e10, 0.3, 0.1) for t in moments])
    host = ("t_s", "cpu_share", "iowait_share", "memory_available_bytes", "memory_total_bytes")
    making.rows("host", host, [(t, 0.4, 0.01, 4e10, 6.8e10) for t in moments])
    making.rows(
        "disks",
        ("t_s", "major", "minor", "read_bytes_per_s", "write_bytes_per_s"),
        [(t, 8, 0, 1e6, 1e5) for t in moments],
    )
    processes = ("t_s", "pid", "role", "cpu_share", "rss_bytes", "threads")
    rows = [(t, pid, role, 0.8, 1e9, 12) for t in moments for pid, role in ((100, 0), (101, 1))]
    making.rows("processes", processes, rows)


def long_run(root: Path, steps: int) -> tuple[StoredRun, int]:
    """So many steps of 10 ms, one of them, whose number is given back, of 700 ms. Written as a block, for speed."""
    making = Making(root)
    process = making.process()
    slow = steps * 2 // 3 + 17
    process.end(exited=False)
    number, fields = wire.KINDS["step"]
    first = body("step", 0, 0, 0, 1, 32, *[0.0] * 11, 10_000, 2, 1, 1, 0, 0, 0)
    slots = np.tile(np.frombuffer(first, np.uint8), (steps, 1))
    names = [name for name, _ in fields]
    at = {name: 4 + struct.calcsize("<" + "".join(code for _, code in fields[: names.index(name)])) for name in names}
    wall_ns = np.full(steps, 10 * MS, np.uint64)
    wall_ns[slow] = 700 * MS
    start_ns = process.now_ns + np.concatenate([[0], np.cumsum(wall_ns[:-1])]).astype(np.uint64)
    for name, values in (("index", np.arange(steps, dtype=np.uint64)), ("start_ns", start_ns), ("wall_ns", wall_ns)):
        slots[:, at[name] : at[name] + 8] = values.view(np.uint8).reshape(steps, 8)
    phases = np.zeros((steps, 11), np.float32)
    phases[:, 0], phases[:, 2], phases[:, 3] = wall_ns * 0.4e-9, wall_ns * 0.3e-9, wall_ns * 0.3e-9
    slots[:, at["phase_s"] : at["phase_s"] + 44] = phases.view(np.uint8)
    data = slots.tobytes()
    pack, crc32 = struct.Struct("<I").pack, zlib.crc32
    with Path(process.path).open("ab") as file:
        file.write(b"".join(data[i : i + 124] + pack(crc32(data[i : i + 124])) for i in range(0, len(data), 124)))
    assert number == wire.KINDS["step"][0]
    return making.stored(wall_s=float(wall_ns.sum()) * 1e-9), slow
