"""What was seen inside a loader's workers, as detectors get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.attach.wire import FILE, HANDOVER, NATIVE, ORDER, PYTHON, SAMPLES
from flatout.diagnose.evidence import gather_evidence
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import CarriedMemory, Evidence
from flatout.records.report import Location
from flatout.words import english
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
    process.append(
        body("fetch", 0xFFFFFFFF, pid - 200, START + MS, START + 100 * MS, 10, 80, 400 * MS, 0, 40 * MS, 0, -1, -1)
    )
    for value in caches:
        process.text("cache", value)
    process.text("files", {"bytes": [1000, 3000, 2000]})
    process.close()


def cache(**changes: Any) -> dict[str, Any]:
    value = {"name": "Frames.cache", "dataset": 1, "kind": "dict", "entries": 10, "capacity": None, "hits": None}
    value |= {"misses": None, "new_keys": 30, "thrown_out": 20, "seen_samples": 40, "first": [8, 8], "samples": 200}
    return value | changes


def test_lines_are_shares_of_a_workers_time_at_work(making: Making) -> None:
    trained(making)
    worker(making, 200, [])
    worker(making, 201, [])
    lines = making.lines(pid=200, start_ns=START + MS, role="worker")
    for number, seconds in ((0, 0.75), (1, 0.25)):
        lines.text("line", {"id": number, "file": "data.py", "line": 10 + number, "function": "load"})
        lines.append(body("line", number, 0, 20, seconds, 2, 0, 0))
    lines.close()

    seen = evidence(making)

    first, second = seen.worker_lines
    assert (first.location.line, first.phase, first.share) == (10, "worker", pytest.approx(0.75))
    assert first.ms == pytest.approx(0.75 * 5.0) and second.ms == pytest.approx(0.25 * 5.0)
    assert seen.all_lines == () and seen.file_bytes == 2000


def test_a_few_looks_say_nothing(making: Making) -> None:
    trained(making)
    worker(making, 200, [])
    lines = making.lines(pid=200, start_ns=START + MS, role="worker")
    lines.text("line", {"id": 0, "file": "data.py", "line": 10, "function": "load"})
    lines.append(body("line", 0, 0, 3, 0.3, 2, 0, 0))
    lines.close()

    assert evidence(making).worker_lines == ()


def test_a_cache_is_one_over_all_workers_and_the_last_figures_count(making: Making) -> None:
    trained(making)
    worker(making, 200, [cache(new_keys=8, seen_samples=8), cache()])
    worker(making, 201, [cache(entries=20, new_keys=10)])

    (found,) = evidence(making).caches

    assert (found.processes, found.entries, found.evicts) == (2, 15.0, True)
    assert found.hit_rate == pytest.approx(1 - 40 / 80)
    assert found.keys_per_sample == pytest.approx(1.0)


def test_counters_are_believed_before_keys(making: Making) -> None:
    trained(making)
    counted = cache(name="Frames.store", kind="counters", hits=90, misses=10, new_keys=0, seen_samples=0, first=None)
    worker(making, 200, [counted, cache(name="Frames.store._kept")])

    (found,) = evidence(making).caches

    assert found.name == "Frames.store._kept" and found.hit_rate == pytest.approx(0.9)


def test_functools_says_all_by_itself(making: Making) -> None:
    trained(making)
    info = {"kind": "lru_cache", "name": "decode", "hits": 20, "misses": 180, "capacity": 64, "entries": 64}
    worker(making, 200, [cache(**info, new_keys=0, seen_samples=0, first=None)])

    (found,) = evidence(making).caches

    assert (found.kind, found.capacity, found.evicts) == ("lru_cache", 64, True)
    assert found.hit_rate == pytest.approx(0.1) and found.keys_per_sample == pytest.approx(1.0)


# The memory behind their batches.


def weighed(making: Making, pid: int, *looks: tuple[int, int, int]) -> None:
    """Bytes shown, bytes carried, and the batches that the look stands for."""
    process = making.process(pid=pid, role="worker", ppid=100, start_ns=START + MS)
    process.append(
        body("fetch", 0xFFFFFFFF, pid - 200, START + MS, START + 100 * MS, 10, 80, 400 * MS, 0, 40 * MS, 0, -1, -1)
    )
    for shown, carried, batches in looks:
        at = ["data.py", 7] if shown < carried else None
        process.text("carried", {"shown": shown, "carried": carried, "batches": batches, "at": at})
    process.close()


def test_the_usual_batch_tells_what_is_carried(making: Making) -> None:
    trained(making)
    weighed(making, 200, (10, 1000, 3), (20, 2000, 4))
    weighed(making, 201, (30, 3000, 3))

    assert evidence(making).loaders[0].carried == CarriedMemory(20, 2000, Location("data.py", 7))


def test_memory_that_is_copied_once_is_not_the_usual_batch(making: Making) -> None:
    trained(making)
    weighed(making, 200, (10, 1000, 3), (10, 1000, 4), (0, 0, 9))

    carried = evidence(making).loaders[0].carried
    assert carried is not None and carried.excess_bytes == 0


def test_two_batches_do_not_tell_what_is_carried(making: Making) -> None:
    trained(making)
    weighed(making, 200, (10, 1000, 3), (20, 2000, 4))

    assert evidence(making).loaders[0].carried is None


# The ledger of the workers: 4 s each, of which 2 s for samples and 0.4 s for collating.


def fetched(making: Making, pid: int, run_ms: int, delay_ms: int) -> None:
    process = making.process(pid=pid, role="worker", ppid=100, start_ns=START + MS)
    begun, ended = START + MS, START + 4_001 * MS
    process.append(
        body(
            "fetch", 0xFFFFFFFF, pid - 200, begun, ended, 10, 80, 2_000 * MS, 400 * MS, 40 * MS, 1_600 * MS,
            run_ms * MS, delay_ms * MS,
        )
    )  # fmt: skip
    process.close()


def looked(making: Making, *looks: tuple[int, int, float]) -> None:
    """Stage, nature and seconds."""
    lines = making.lines(pid=200, start_ns=START + MS, role="worker")
    lines.text("line", {"id": 0, "file": "data.py", "line": 10, "function": "load"})
    for stage, nature, seconds in looks:
        lines.append(body("line", 0, stage, 20, seconds, nature, 0, 0))
    lines.close()


def test_what_a_worker_does_adds_up(making: Making) -> None:
    trained(making)
    fetched(making, 200, run_ms=1_200, delay_ms=600)
    fetched(making, 201, run_ms=1_800, delay_ms=0)
    looked(making, (SAMPLES, PYTHON, 1.5), (SAMPLES, FILE, 0.5), (HANDOVER, NATIVE, 0.3), (ORDER, 0, 0.9))

    ledger = evidence(making).report.worker_ledger

    assert ledger is not None and sum(ledger.parts.values()) == pytest.approx(1.0)
    first, second = ledger.workers
    assert first.parts["not running"] == pytest.approx(0.6 / 4) and second.parts["not running"] == 0.0
    assert first.parts["samples"] == pytest.approx(0.5 * (1 - 0.6 / 2.4))
    assert second.parts == pytest.approx(
        {"samples": 0.5, "collate": 0.1, "handover": 0.1, "order": 0.3, "room": 0, "not running": 0, "not measured": 0}
    )
    assert ledger.computing == pytest.approx(3.6 / 4.8)
    # No processor was free for an eighth of the work: a thread that waits for a file would not have wanted one.
    assert ledger.natures == pytest.approx({"python": 0.625, "file": 0.25, "not running": 0.125})


def test_without_looks_between_batches_that_time_is_not_measured(making: Making) -> None:
    trained(making)
    fetched(making, 200, run_ms=-1, delay_ms=-1)
    looked(making, (SAMPLES, PYTHON, 1.5))

    ledger = evidence(making).report.worker_ledger

    assert ledger is not None and ledger.computing is None
    assert ledger.parts["not measured"] == pytest.approx(0.4) and ledger.parts["not running"] == 0.0


def test_the_first_batch_of_a_process_is_part_of_its_start(making: Making) -> None:
    trained(making)
    process = making.process(pid=200, role="worker", ppid=100, start_ns=START + MS)
    # Five batches of 8 samples: the first takes 200 ms, the others 10 ms each, half of it collating.
    counted = (0, START + MS, START + 400 * MS, 5, 40, 120 * MS, 120 * MS, 200 * MS, 0, 200 * MS, 0, 200 * MS, 8)
    process.append(body("fetch", 0xFFFFFFFF, *counted))
    process.close()

    (cost,) = evidence(making).report.workers

    assert cost.fetch_ms_per_sample + cost.collate_ms_per_sample == pytest.approx(40 / 32)
    assert cost.samples == 40


def noted(folder: Path, *texts: tuple[str, Any]) -> Evidence:
    making = Making(folder)
    process = making.process(pid=100)
    process.text("loader", {"id": 1, "file": "train.py", "line": 5, "num_workers": 0, "dataset_len": 32})
    process.text("torch", {"training_loaders": [1]})
    for what, value in texts:
        process.text(what, value)
    process.steps(20, 10.0)
    process.end()
    run = making.stored()
    return gather_evidence(run, training_ranks(run), summarise_run(run))


def kind(dtype: str, size: int, narrow: str, narrow_size: int, count: int) -> dict[str, Any]:
    return {"dtype": dtype, "itemsize": size, "narrow": narrow, "narrow_itemsize": narrow_size, "bytes": count}


def test_the_last_note_on_a_line_counts_and_bytes_are_weighed(tmp_path: Path) -> None:
    site = {"id": 7, "op": "h2d", "file": "train.py", "line": 12, "function": "train"}
    early = {"site": 7, "bytes": 400, "kinds": [kind("float32", 4, "uint8", 1, 400)]}
    late = {
        "site": 7,
        "bytes": 1000,
        "kinds": [kind("float32", 4, "uint8", 1, 800), kind("int64", 8, "int64", 8, 200)],
    }

    run = noted(tmp_path, ("site", site), ("narrow", early), ("narrow", late))

    (copy,) = run.narrow_copies
    assert (copy.location, copy.dtype, copy.narrow) == (Location("train.py", 12), "float32", "uint8")
    assert copy.saved_share == pytest.approx(0.6)


def test_nothing_to_save_is_no_narrow_copy(tmp_path: Path) -> None:
    site = {"id": 7, "op": "h2d", "file": "train.py", "line": 12, "function": "train"}
    note = {"site": 7, "bytes": 400, "kinds": [kind("float32", 4, "float32", 4, 400)]}

    assert noted(tmp_path, ("site", site), ("narrow", note)).narrow_copies == ()


def note(length: int, lengths: list[int], loader: int = 1, computed: bool = True) -> tuple[str, Any]:
    value = {"loader": loader, "kind": "ids", "rows": len(lengths), "length": length, "value": 0, "lengths": lengths}
    return "padding", {**value, "computed": computed}


def test_padding_now_if_trimmed_and_if_sorted(tmp_path: Path) -> None:
    other = note(1000, [1, 1], loader=2)

    padding = noted(tmp_path, note(100, [10, 50]), note(100, [50, 10], computed=False), other).padding

    assert padding is not None
    assert (padding.batches, padding.rows, padding.length) == (2, 4, 100.0)
    assert padding.share == pytest.approx(0.7)
    assert padding.share_if_trimmed == pytest.approx(0.4)
    # Sixteen batches of two: one in which both lengths meet.
    assert padding.share_if_sorted < 0.15
    assert (english(padding.kind), padding.computed_share) == ("the value 0", 0.5)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("ids", 0, "the value 0"),
        ("mask", 0, "masked out"),
        ("features", -11.512925, "frames that hold only the value -11.5"),
        ("lengths", 0.0, "beyond the lengths that come with the batch"),
    ],
)
def test_what_pads_is_said(tmp_path: Path, kind: str, value: float, text: str) -> None:
    what, noted_one = note(100, [10, 50])

    padding = noted(tmp_path, (what, {**noted_one, "kind": kind, "value": value})).padding

    assert padding is not None and english(padding.kind) == text


def test_without_a_note_there_is_none(tmp_path: Path) -> None:
    assert noted(tmp_path).padding is None
