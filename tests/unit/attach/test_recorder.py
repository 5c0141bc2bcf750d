from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.attach import wire
from flatout.attach.recorder import Recorder
from flatout.store.recording import read_recording
from tests.unit.making import body, facts, step_body


def test_every_kind_fits_a_slot_and_no_two_share_a_number() -> None:
    numbers = [number for number, _ in wire.KINDS.values()]

    assert len(set(numbers)) == len(numbers) and 0 not in numbers
    assert all(wire.packer(kind).size == wire.BODY_BYTES for kind in wire.KINDS)


@given(st.sampled_from(sorted(set(wire.KINDS) - {"text"})), st.data())
def test_every_kind_round_trips(tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("kind") / "a.rec"
    values: list[float] = []
    for _, code in wire.KINDS[kind][1]:
        for letter in code[-1] * int(code[:-1] or 1):
            bits = 8 * struct.calcsize("<" + letter)
            if letter in "fd":
                values.append(data.draw(st.floats(width=bits, allow_nan=False)))
            elif letter.isupper():
                values.append(data.draw(st.integers(0, (1 << bits) - 1)))
            else:
                values.append(data.draw(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)))
    recorder = Recorder(str(path), facts(), 4096)
    recorder.append(body(kind, *values))
    recorder.close()

    row = read_recording(path).records[kind][0]

    read = [
        v for name, _ in wire.KINDS[kind][1] for v in (row[name].tolist() if row[name].shape else [row[name].item()])
    ]
    assert read == values


def test_a_file_in_the_way_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_text("mine")

    with pytest.raises(FileExistsError):
        Recorder(str(tmp_path / "a.rec"), facts())
    assert (tmp_path / "a.rec").read_text() == "mine"


def test_records_over_many_chunks_and_totals_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    recorder = Recorder(str(path), facts(), 4096)
    place = -1
    for i in range(100):
        place = recorder.put(place, body("line", 7, 2, i, i * 0.1, 2, 0, 0))
        recorder.append(step_body(i, i, 1))
    recorder.close()
    recorder.close()

    recording = read_recording(path)

    assert recording.column("step", "index").tolist() == list(range(100))
    totals = recording.column("line", "samples").tolist()
    assert totals[-1] == 99 and len(totals) < 10
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_drops_records_counts_them_and_goes_on_after(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_write_over_the_limit(path))
        except BaseException:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    recording = read_recording(path)

    first = (65536 - 4096) // wire.SLOT_BYTES
    indexes = recording.column("step", "index").tolist()
    assert indexes[:first] == list(range(first))
    (gap,) = recording.records["gap"]
    assert recording.lost.dropped_records == gap["dropped"] == 4096
    assert gap["end_ns"] >= gap["start_ns"]
    assert indexes[first:] == list(range(first + int(gap["dropped"]), first + int(gap["dropped"]) + 50))


def _write_over_the_limit(path: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    recorder = Recorder(str(path), facts(), 4096)
    index = 0
    while recorder.dropped < 4096:
        recorder.append(step_body(index, index, 1))
        index += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for _ in range(50):
        recorder.append(step_body(index, index, 1))
        index += 1
    recorder.close()
    return 0


def test_a_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[3])
    child = subprocess.run(
        [sys.executable, "-c", FORKER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ["PYTHONPATH"]])},
    )
    acknowledged = [int(line) for line in child.stdout.split()]

    assert len(acknowledged) == 100 and sum(acknowledged) > 100
    for number, last in enumerate(acknowledged):
        recording = read_recording(tmp_path / f"{number}.rec")
        indexes = recording.column("step", "index").tolist()
        assert indexes[: last + 1] == list(range(last + 1)), number
        assert indexes == list(range(len(indexes)))
        # The record under the writer's hands at that moment may be torn.
        assert recording.lost.damaged_slots <= 1


# Starts a hundred writers by fork (an interpreter each would take a minute), reads what each acknowledges, kills it -9
# at a random moment and prints the last index seen.
FORKER = """
import os, random, signal, sys
from flatout.attach.recorder import Recorder
from tests.unit.making import facts, step_body

choice = random.Random(7)
for number in range(100):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        recorder = Recorder(f"{sys.argv[1]}/{number}.rec", facts(), 4096)
        for index in range(1_000_000):
            recorder.append(step_body(index, index, 1))
            os.write(writing, index.to_bytes(4, "little"))
        os._exit(0)
    os.close(writing)
    wanted = choice.randrange(1, 200)
    seen = b""
    while len(seen) < 4 * wanted:
        seen += os.read(reading, 4 * wanted - len(seen))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(reading, 65536):
        seen += more
    os.close(reading)
    print(int.from_bytes(seen[-4:], "little"))
"""
