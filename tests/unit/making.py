"""Makes stored runs as a watched script would leave them, written by the real recorder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from flatout.attach import wire
from flatout.attach.recorder import Recorder
from flatout.store.directory import RunDirectory, create_run
from flatout.store.manifest import Manifest
from flatout.store.rows import RowWriter
from flatout.store.run import StoredRun

MS = 1_000_000
UNKNOWN = wire.UNKNOWN_SAMPLES


def body(kind: str, *values: float) -> bytes:
    """The body of a slot of this kind; fields at its end that are not given are 0."""
    fields = sum(int(code[:-1] or 1) for _, code in wire.KINDS[kind][1])
    return wire.packer(kind).pack(wire.KINDS[kind][0], 0, 0, *values, *[0] * (fields - len(values)))


def facts(pid: int = 100, **more: object) -> dict[str, object]:
    return {
        "pid": pid,
        "ppid": 1,
        "role": "trainer",
        "rank": None,
        "local_rank": None,
        "world_size": None,
        "host": "box",
        "start_ns": 0,
        "start_unix_ns": 0,
        "python": "3.11.7",
        "argv0": "train.py",
        "thread": "main",
        **more,
    }


def step_body(
    index: int,
    start_ns: int,
    wall_ns: int,
    phases: Mapping[str, float] | None = None,
    *,
    steps: int = 1,
    samples: int = 32,
    own_ns: int = 10_000,
    queue: int = -1,
) -> bytes:
    """One step; `phases` are shares of its wall time, the rest is `other`."""
    shares = dict(phases or {})
    shares["other"] = shares.get("other", 0.0) + 1.0 - sum(shares.values())
    seconds = [shares.get(name, 0.0) * wall_ns * 1e-9 for name in wire.PHASES]
    return body("step", index, start_ns, wall_ns, steps, samples, *seconds, own_ns, queue, 1, 1, 0, 0, 0)


class Process(Recorder):
    """A process's recording, with steps laid end to end."""

    def __init__(self, path: Path, process_facts: dict[str, object], start_ns: int = 0) -> None:
        super().__init__(str(path), process_facts, 1 << 16)
        self.now_ns = start_ns
        self.index = -1

    def step(self, wall_ms: float = 10.0, phases: Mapping[str, float] | None = None, **more: Any) -> None:
        self.index += more.get("steps", 1)
        wall_ns = int(wall_ms * MS)
        self.append(step_body(self.index, self.now_ns, wall_ns, phases, **more))
        self.now_ns += wall_ns

    def steps(self, count: int, wall_ms: float = 10.0, phases: Mapping[str, float] | None = None, **more: Any) -> None:
        for _ in range(count):
            self.step(wall_ms, phases, **more)

    def end(self, exited: bool = True) -> None:
        if exited:
            self.text("exit", {"end_ns": self.now_ns})
        self.close()


class Making:
    """A run under construction."""

    def __init__(self, root: Path, argv: Sequence[str] = ("train.py",)) -> None:
        self.directory: RunDirectory = create_run("train.py", root=root)
        self.manifest = self.directory.begin(Manifest(self.directory.id, tuple(argv), "/somewhere", 1000.0))

    def process(self, pid: int = 100, start_ns: int = 5_000 * MS, **more: object) -> Process:
        path = self.directory.work / "proc" / f"{pid}-{start_ns}.rec"
        return Process(path, facts(pid, start_ns=start_ns, **more), start_ns)

    def lines(self, pid: int = 100, start_ns: int = 5_000 * MS, **more: object) -> Process:
        path = self.directory.work / "proc" / f"{pid}-{start_ns + 7}.lines.rec"
        return Process(path, facts(pid, start_ns=start_ns, thread="lines", **more))

    def rows(self, source: str, columns: Sequence[str], rows: Iterable[Sequence[float | None]]) -> None:
        with closing(RowWriter(self.directory.work / "telemetry" / f"{source}.rows", columns)) as writer:
            for row in rows:
                writer.append(row)

    def stored(self, exit_code: int | None = 0, wall_s: float | None = 60.0, **more: Any) -> StoredRun:
        ended = dataclasses.replace(
            self.manifest, exit_code=exit_code, ended_unix_s=1000.0 + (wall_s or 0), wall_s=wall_s, **more
        )
        self.manifest = self.directory.finish(ended)
        return StoredRun(self.directory.path)
