"""What was seen inside a loader's workers, as detectors get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.evidence import gather_evidence
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import Evidence
from tests.unit.making import MS, Making, body

START = 5_000 * MS
SETTINGS = {"file": "train.py", "line": 5, "num_workers": 2, "batch_size": 8, "persistent_workers": False}


def evidence(making: Making) -> Evidence:
    run = making.stored()
    return gather_evidence(run, training_ranks(run), summarise_run(run))


def trained(making: Making) -> None:
    process = making.process(pid=100)
    process.text("loader", {"id": 1, **SETTINGS})
    process.text("workers", {"loader": 1, "pids": [200, 201], "start_ns": START})
    process.text("torch", {"training_loaders": [1]})
    process.steps(40, 12.0)
    process.end()


def worker(making: Making, pid: int, caches: list[dict[str, Any]]) -> None:
    process = making.process(pid=pid, role="worker", ppid=100, start_ns=START + MS)
    process.append(body("fetch", 0xFFFFFFFF, pid - 200, START + MS, START + 100 * MS, 10, 80, 400 * MS, 0, 40 * MS, 0))
    for value in caches:
        process.text("cache", value)
    process.text("files", {"bytes": [1000, 3000, 2000]})
    process.close()


def cache(**changes: Any) -> dict[str, Any]:
    value = {"name": "Frames.cache", "dataset": 1, "kind": "dict", "entries": 10, "capacity": None, "hits": None}
    value |= {"misses": None, "new_keys": 30, "thrown_out": 20, "seen_samples": 40, "first": [8, 8], "samples": 200}
    return value | changes


def test_lines_are_shares_of_a_workers_time_at_work(tmp_path: Path) -> None:
    making = Making(tmp_path)
    trained(making)
    worker(making, 200, [])
    worker(making, 201, [])
    lines = making.lines(pid=200, start_ns=START + MS, role="worker")
    for number, seconds in ((0, 0.75), (1, 0.25)):
        lines.text("line", {"id": number, "file": "data.py", "line": 10 + number, "function": "load"})
        lines.append(body("line", number, 0, 20, seconds))
    lines.close()

    seen = evidence(making)

    first, second = seen.worker_lines
    assert (first.location.line, first.phase, first.share) == (10, "worker", pytest.approx(0.75))
    assert first.ms == pytest.approx(0.75 * 5.0) and second.ms == pytest.approx(0.25 * 5.0)
    assert seen.all_lines == () and seen.file_bytes == 2000


def test_a_few_looks_say_nothing(tmp_path: Path) -> None:
    making = Making(tmp_path)
    trained(making)
    worker(making, 200, [])
    lines = making.lines(pid=200, start_ns=START + MS, role="worker")
    lines.text("line", {"id": 0, "file": "data.py", "line": 10, "function": "load"})
    lines.append(body("line", 0, 0, 3, 0.3))
    lines.close()

    assert evidence(making).worker_lines == ()


def test_a_cache_is_one_over_all_workers_and_the_last_figures_count(tmp_path: Path) -> None:
    making = Making(tmp_path)
    trained(making)
    worker(making, 200, [cache(new_keys=8, seen_samples=8), cache()])
    worker(making, 201, [cache(entries=20, new_keys=10)])

    (found,) = evidence(making).caches

    assert (found.processes, found.entries, found.evicts) == (2, 15.0, True)
    assert found.hit_rate == pytest.approx(1 - 40 / 80)
    assert found.keys_per_sample == pytest.approx(1.0)


def test_counters_are_believed_before_keys(tmp_path: Path) -> None:
    making = Making(tmp_path)
    trained(making)
    counted = cache(name="Frames.store", kind="counters", hits=90, misses=10, new_keys=0, seen_samples=0, first=None)
    worker(making, 200, [counted, cache(name="Frames.store._kept")])

    (found,) = evidence(making).caches

    assert found.name == "Frames.store._kept" and found.hit_rate == pytest.approx(0.9)


def test_functools_says_all_by_itself(tmp_path: Path) -> None:
    making = Making(tmp_path)
    trained(making)
    info = {"kind": "lru_cache", "name": "decode", "hits": 20, "misses": 180, "capacity": 64, "entries": 64}
    worker(making, 200, [cache(**info, new_keys=0, seen_samples=0, first=None)])

    (found,) = evidence(making).caches

    assert (found.kind, found.capacity, found.evicts) == ("lru_cache", 64, True)
    assert found.hit_rate == pytest.approx(0.1) and found.keys_per_sample == pytest.approx(1.0)
