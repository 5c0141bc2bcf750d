"""The table in shared memory: hits, misses, who leaves, and what a killed writer leaves behind."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flatout.feed.cache.format import labelled
from flatout.feed.cache.policy import Keep, Lru, Policy
from flatout.feed.cache.randomness import alike
from flatout.feed.cache.segment import TABLE_AT, Counter, Field, Segment, Word, open_segment
from flatout.feed.cache.table import MISS, Table

SAMPLES = 40
SAMPLE_BYTES = 1000
HEAD_BYTES = 128  # more than it has, and its rounding
OVERHEAD = (TABLE_AT + SAMPLES * 8) * 8 + 4096


def sample(index: int, nbytes: int = SAMPLE_BYTES) -> tuple[torch.Tensor, int]:
    return torch.full((nbytes,), index % 250, dtype=torch.uint8), index


def opened(folder: Path, places: float, policy: Policy) -> Table:
    budget = OVERHEAD + int(places * (SAMPLE_BYTES + HEAD_BYTES))
    return Table(open_segment(str(folder), "flatout-cache-test", SAMPLES, budget), policy, lambda nbytes: True)


def segment_of(table: Table) -> Segment:
    return table.segment


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Table]:
    table = opened(tmp_path, 2 * SAMPLES, Keep())
    yield table
    table.forget_views()
    segment_of(table).close()


def read(table: Table, index: int, load_ns: int = 1000) -> bool:
    """As the dataset does it; tells whether it was a hit."""
    found = table.get(index)
    if found is MISS:
        table.put(index, sample(index), load_ns)
        return False
    assert torch.equal(found[0], sample(index)[0]) and found[1] == index
    return True


def must_be_in_order(table: Table) -> None:
    """No two samples share a byte, all are whole, the sums are right."""
    lines = table._lines
    owned = sorted((int(line[Field.PLACE]), int(line[Field.CAPACITY])) for line in lines if line[Field.CAPACITY])
    words = segment_of(table).words
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(owned))
    assert all(at + size <= words[Word.DATA_AT] + words[Word.USED] for at, size in owned)
    assert words[Word.USED] <= words[Word.ALLOCATED] <= words[Word.DATA_BYTES]
    kept = table.kept()
    assert words[Word.ITEMS] == len(kept)
    assert words[Word.LIVE_BYTES] == int(lines[:, Field.NBYTES].sum())
    for index in kept:
        found = table.get(index)
        assert found is not MISS and torch.equal(found[0], sample(index)[0])


def test_a_sample_is_missed_once_and_hit_after(keeping: Table) -> None:
    assert [read(keeping, index) for index in (3, 3, 5, 3)] == [False, True, False, True]
    segment = segment_of(keeping)
    assert [segment.total(c) for c in (Counter.HITS, Counter.MISSES, Counter.FIRST_READS)] == [2, 2, 2]
    must_be_in_order(keeping)


IMAGE = torch.arange(40, dtype=torch.int16)


@pytest.mark.parametrize(
    "given", [IMAGE, (IMAGE, -5), (IMAGE, 2**40, 0.5), (IMAGE, "name"), {"label": 7, "image": IMAGE}, [3, IMAGE], 9]
)
def test_a_sample_of_any_layout_is_the_same_at_every_hit(keeping: Table, given: Any) -> None:
    keeping.put(4, given, 1000)
    keeping.put(5, (IMAGE, 6), 1000)

    found = [keeping.get(index) for index in (4, 5, 4, 5, 4)]

    assert all(alike(sample, given) for sample in found[::2])
    assert all(alike(sample, (IMAGE, 6)) for sample in found[1::2])


def test_another_handle_sees_the_same_samples(keeping: Table, tmp_path: Path) -> None:
    read(keeping, 7)

    other = opened(tmp_path, 1, Keep())

    assert read(other, 7)
    other.forget_views()
    segment_of(other).close()
    assert read(keeping, 7)


@pytest.mark.parametrize("at", [0, 1, 5, 60, 700])
def test_a_flipped_byte_is_a_miss_that_is_counted_and_loaded_again(keeping: Table, tmp_path: Path, at: int) -> None:
    read(keeping, 4)
    place = int(keeping._lines[4, Field.PLACE])

    segment_of(keeping).data[place + at] ^= 0x10

    assert not read(keeping, 4)
    assert read(keeping, 4)
    assert segment_of(keeping).total(Counter.CORRUPT) == 1
    must_be_in_order(keeping)


@pytest.mark.parametrize("field", [Field.PLACE, Field.NBYTES, Field.HEAD, Field.LAYOUT])
def test_a_flipped_bit_in_the_table_is_a_miss(keeping: Table, field: Field) -> None:
    read(keeping, 4)
    read(keeping, 5)

    segment_of(keeping).words[TABLE_AT + 4 * 8 + field] ^= 1 << 7

    assert not read(keeping, 4)
    assert read(keeping, 5)


def test_a_byte_that_flips_after_the_check_is_noticed_at_the_next_one(keeping: Table) -> None:
    read(keeping, 4)
    read(keeping, 4)
    segment_of(keeping).data[int(keeping._lines[4, Field.PLACE]) + 300] ^= 1

    noticed = [keeping.get(4) is MISS for _ in range(1025)]

    assert any(noticed) and segment_of(keeping).total(Counter.CORRUPT) == 1


def test_a_sample_that_is_being_written_is_not_seen(keeping: Table) -> None:
    read(keeping, 4)

    segment_of(keeping).words[TABLE_AT + 4 * 8] += 1

    assert keeping.get(4) is MISS


def test_a_sample_that_is_replaced_while_it_is_read_is_a_miss(keeping: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read(keeping, 4)
    read(keeping, 4)
    words, line = segment_of(keeping).words, TABLE_AT + 4 * 8
    build = labelled[words[line + Field.LAYOUT]]

    def build_while_replaced(*args: Any) -> Any:
        words[line] += 2
        return build(*args)

    monkeypatch.setitem(labelled, words[line + Field.LAYOUT], build_while_replaced)

    assert keeping.get(4) is MISS


def test_keep_admits_only_what_was_clearly_dearer_twice(tmp_path: Path) -> None:
    table = opened(tmp_path, 10, Keep())
    for index in range(20):
        read(table, index)
    full = set(table.kept())

    read(table, 30, load_ns=50_000)
    assert set(table.kept()) == full
    read(table, 30, load_ns=1_900)
    assert set(table.kept()) == full
    read(table, 31, load_ns=50_000)
    read(table, 31, load_ns=40_000)

    assert 31 in table.kept() and len(table.kept()) == len(full)
    assert segment_of(table).total(Counter.EVICTIONS) == 1
    must_be_in_order(table)
    table.forget_views()
    segment_of(table).close()


def test_lru_evicts_what_was_read_longest_ago(tmp_path: Path) -> None:
    table = opened(tmp_path, 10, Lru())
    order = np.random.default_rng(1).integers(0, 20, 600).tolist()
    stack: list[int] = []
    places = 0
    for index in order:
        if table.get(index) is MISS:
            table.put(index, sample(index), 1000)
            places = max(places, len(table.kept()))
        stack = [index, *(other for other in stack if other != index)]
        assert set(table.kept()) == set(stack[: len(table.kept())])

    assert places >= 10
    must_be_in_order(table)
    table.forget_views()
    segment_of(table).close()


def test_samples_of_many_sizes_share_the_room(tmp_path: Path) -> None:
    table = opened(tmp_path, 10, Lru())
    sizes = np.random.default_rng(2).integers(1, 3000, SAMPLES).tolist()
    for index in np.random.default_rng(3).integers(0, SAMPLES, 800).tolist():
        found = table.get(index)
        if found is MISS:
            table.put(index, sample(index, sizes[index]), 1000)
        else:
            assert torch.equal(found[0], sample(index, sizes[index])[0])

    segment = segment_of(table)
    assert segment.total(Counter.HITS) > 50 and segment.total(Counter.CORRUPT) == 0
    table.forget_views()
    segment.close()


def test_a_reader_at_any_moment_of_a_change_gets_the_right_sample_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, reader = opened(tmp_path, 10, Lru()), opened(tmp_path, 10, Lru())
    for index in range(20):
        read(table, index)
    before = set(table.kept())
    moments: list[int] = []

    def read_all() -> None:
        # What a process with another handle can find while the writer is just there.
        moments.append(len(moments))
        for index in range(SAMPLES):
            found = reader.get(index)
            assert found is MISS or (torch.equal(found[0], sample(index)[0]) and found[1] == index)

    with monkeypatch.context() as during:
        during.setattr(segment_of(table), "fence", read_all)
        table.put(33, sample(33), 1000)

    (victim,) = before - set(table.kept())
    assert len(moments) >= 6 and reader.get(victim) is MISS and read(reader, 33)
    assert segment_of(table).total(Counter.CORRUPT) == 0
    for each in (reader, table):
        each.forget_views()
        segment_of(each).close()


@pytest.mark.parametrize("after", range(1, 9))
@pytest.mark.parametrize("is_full", [False, True])
def test_a_writer_killed_at_any_point_leaves_order(tmp_path: Path, is_full: bool, after: int) -> None:
    table = opened(tmp_path, 10, Lru())
    for index in range(20 if is_full else 5):
        read(table, index)
    child = os.fork()
    if child == 0:
        calls = itertools.count(1)
        segment = segment_of(table)
        segment.fence = lambda: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == after else None  # type: ignore[method-assign]
        table.put(33, sample(33), 1000)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status)

    read(table, 34)
    read(table, 33)

    assert read(table, 33) and read(table, 34)
    must_be_in_order(table)
    assert was_killed or after > 5
    for index in range(20):
        # The one whose place was wanted can be kept again, too.
        read(table, index)
        assert read(table, index)
    must_be_in_order(table)
    table.forget_views()
    segment_of(table).close()
