from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.attach import wire
from flatout.attach.recorder import Recorder
from flatout.errors import FlatoutError
from flatout.store import recording as recording_module
from flatout.store.recording import SLOT_BYTES, Recording, Tail, read_recording
from tests.unit.making import body, facts, step_body

STEPS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "100-1.rec"
    recorder = Recorder(str(path), facts())
    recorder.text("torch", {"version": "2.13.0", "note": "x" * 500})
    for i in range(STEPS):
        recorder.append(step_body(i, i * 1000, 1000))
    recorder.text("exit", {"end_ns": 7})
    recorder.close()
    return path


def header_bytes(data: bytes) -> int:
    return int(struct.unpack_from("<I", data, 12)[0])


def indexes(recording: Recording) -> list[int]:
    return [int(i) for i in recording.column("step", "index")]


def test_everything_written_is_read_by_the_files_own_table(path: Path) -> None:
    recording = read_recording(path)

    assert recording.facts["pid"] == 100
    assert recording.phases == wire.PHASES
    assert indexes(recording) == list(range(STEPS))
    assert recording.column("step", "phase_s").shape == (STEPS, len(wire.PHASES))
    assert recording.texts[0] == ("torch", {"version": "2.13.0", "note": "x" * 500})
    assert recording.values("exit") == [{"end_ns": 7}]
    assert not recording.lost


def test_a_field_that_the_table_lacks_is_nan(path: Path) -> None:
    recording = read_recording(path)

    assert np.isnan(recording.column("step", "invented_later")).all()
    assert recording.column("invented_kind", "index").shape == (0,)


def test_a_growing_file_shows_what_is_there_so_far(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "a.rec"), facts())
    for i in range(3):
        recorder.append(step_body(i, i, 1))
        assert indexes(read_recording(tmp_path / "a.rec")) == list(range(i + 1))
    recorder.close()


def test_a_file_whose_writer_died_before_the_header_is_empty(tmp_path: Path) -> None:
    for name, content in (("empty.rec", b""), ("zeros.rec", bytes(8192))):
        (tmp_path / name).write_bytes(content)

        recording = read_recording(tmp_path / name)

        assert recording.texts == () and recording.count("step") == 0 and not recording.lost


def test_truncation_at_every_offset_of_the_tail_keeps_all_earlier_records(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    start = len(data) - 4 * SLOT_BYTES
    cut_file = tmp_path / "cut.rec"
    whole = read_recording(path)
    for cut in range(start, len(data)):
        cut_file.write_bytes(data[:cut])

        recording = read_recording(cut_file)

        slots = (cut - header_bytes(data)) // SLOT_BYTES
        before_steps = (len(data) - header_bytes(data)) // SLOT_BYTES - STEPS - 1  # the first text
        assert len(indexes(recording)) == min(STEPS, max(0, slots - before_steps))
        assert recording.texts[0] == whole.texts[0]
        assert bool(recording.lost) == (cut % SLOT_BYTES != 0)


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_a_flip_at_every_offset_of_the_tail_costs_its_own_record_only(path: Path, tmp_path: Path, mask: int) -> None:
    data = path.read_bytes()
    flipped_file = tmp_path / "flipped.rec"
    exit_at = len(data) - SLOT_BYTES
    for at in range(len(data) - 3 * SLOT_BYTES, len(data)):
        flipped = bytearray(data)
        flipped[at] ^= mask
        flipped_file.write_bytes(flipped)

        recording = read_recording(flipped_file)

        assert recording.lost.damaged_slots == 1
        expected = STEPS if at >= exit_at else STEPS - 1
        assert len(indexes(recording)) == expected
        assert len(recording.values("exit")) == (0 if at >= exit_at else 1)


def test_a_flip_at_every_offset_of_the_header_costs_no_step(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    like = read_recording(path).header
    flipped_file = tmp_path / "flipped.rec"
    version = range(8, 12)
    text_bytes = struct.unpack_from("<I", data, 16)[0]
    for at in [*range(24), *range(24, 24 + text_bytes, 29), *range(24 + text_bytes, header_bytes(data) - 8, 101)]:
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        flipped_file.write_bytes(flipped)
        if at in version:
            with pytest.raises(FlatoutError, match="version"):
                read_recording(flipped_file, like)
            continue

        recording = read_recording(flipped_file, like)

        assert indexes(recording) == list(range(STEPS)), at


def test_a_damaged_header_without_a_neighbour_is_refused(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises(FlatoutError, match="damaged header"):
        read_recording(path)


def test_an_unknown_version_is_refused_and_left_alone(path: Path) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, 99)
    path.write_bytes(data)

    with pytest.raises(FlatoutError, match="version 99"):
        read_recording(path)
    assert path.read_bytes() == bytes(data)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_text("hello, this is no recording at all")

    with pytest.raises(FlatoutError, match="not a flatout recording"):
        read_recording(tmp_path / "a.rec")


def test_kinds_and_field_codes_unknown_here_are_skipped(path: Path) -> None:
    data = path.read_bytes()
    slot = bytes([250]) + bytes(123)
    with path.open("ab") as file:
        file.write(slot + struct.pack("<I", zlib.crc32(slot)))

    recording = read_recording(path)

    assert indexes(recording) == list(range(STEPS))
    assert not recording.lost

    text = json.loads(data[24 : 24 + struct.unpack_from("<I", data, 16)[0]])
    text["kinds"]["step"]["fields"][0][1] = "?"
    changed = json.dumps(text).encode()
    head = struct.pack("<8sIIII", wire.MAGIC, wire.VERSION, header_bytes(data), len(changed), zlib.crc32(changed))
    path.write_bytes((head + changed).ljust(header_bytes(data), b"\0") + data[header_bytes(data) :])
    assert read_recording(path).count("step") == 0


def test_a_text_with_a_lost_middle_is_not_put_together(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[header_bytes(data) + 2 * SLOT_BYTES + 50] ^= 0xFF
    path.write_bytes(data)

    recording = read_recording(path)

    assert recording.values("torch") == []
    assert recording.lost.damaged_slots == 1 and recording.lost.broken_texts == 1
    assert len(indexes(recording)) == STEPS


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=300),
            lambda s: st.lists(s, max_size=4),
        ),
        max_size=4,
    )
)
def test_texts_round_trip(tmp_path_factory: pytest.TempPathFactory, value: dict[str, object]) -> None:
    path = tmp_path_factory.mktemp("text") / "a.rec"
    recorder = Recorder(str(path), facts())
    recorder.text("value", value)
    recorder.close()

    assert read_recording(path).values("value") == [value]


def test_a_ten_megabyte_string_and_nan_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    text = "ä€" * 1_700_000
    recorder = Recorder(str(path), facts())
    recorder.text("notice", text)
    recorder.append(body("device", 1, *([float("nan")] * 6), 4, 2))
    recorder.close()

    recording = read_recording(path)

    assert recording.values("notice") == [text]
    assert np.isnan(recording.column("device", "starved_ms")).all()
    assert recording.column("device", "drained").tolist() == [2]


class TestTail:
    def test_each_poll_gives_what_is_new(self, tmp_path: Path) -> None:
        path = tmp_path / "a.rec"
        tail = Tail(path)
        assert tail.poll().header is None
        recorder = Recorder(str(path), facts(), 1 << 12)
        seen: list[int] = []
        for i in range(100):
            recorder.append(step_body(i, i, 1))
            if i % 7 == 0:
                seen += indexes(tail.poll())
        recorder.text("notice", "z" * 400)
        recorder.close()

        last = tail.poll()

        assert seen + indexes(last) == list(range(100))
        assert last.values("notice") == ["z" * 400]
        assert indexes(tail.poll()) == []

    def test_a_long_recording_is_read_in_parts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recording_module, "_MOST_BLOCKS", 1)
        recorder = Recorder(str(tmp_path / "a.rec"), facts())
        for i in range(10_000):
            recorder.append(step_body(i, i, 1))
        recorder.close()
        tail = Tail(tmp_path / "a.rec")

        first, was_behind = indexes(tail.poll()), tail.is_behind
        rest = indexes(tail.poll())

        assert 0 < len(first) < 10_000 and was_behind
        assert first + rest == list(range(10_000)) and not tail.is_behind

    def test_a_half_written_slot_is_waited_for_once(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        at = header_bytes(data) + 8 * SLOT_BYTES + 60
        data[at] ^= 0xFF
        path.write_bytes(data)
        tail = Tail(path)

        first = indexes(tail.poll())
        data[at] ^= 0xFF
        path.write_bytes(data)
        rest = tail.poll()

        assert first == [0, 1, 2]
        assert first + indexes(rest) == list(range(STEPS))
        assert not rest.lost

    def test_a_slot_that_stays_bad_is_passed_over(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[header_bytes(data) + 8 * SLOT_BYTES + 60] ^= 0xFF
        path.write_bytes(data)
        tail = Tail(path)

        first, rest = indexes(tail.poll()), tail.poll()

        assert len(first) + len(indexes(rest)) == STEPS - 1
        assert rest.lost.damaged_slots == 1
