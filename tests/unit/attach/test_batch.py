"""The number of samples in a batch of any make."""

from __future__ import annotations

import itertools
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from flatout.attach import batch as batches
from flatout.attach.batch import (
    PaddingInspector,
    carried_bytes,
    count_at,
    count_samples,
    find_padding,
    find_samples,
    tensor_bytes,
)
from tests.unit.attach.contexts import Notes

Pair = namedtuple("Pair", "image label")


@dataclass
class Sample:
    name: str
    image: Any
    camera: Any


class Slotted:
    __slots__ = ("pixels",)

    def __init__(self, pixels: Any) -> None:
        self.pixels = pixels


class Graphs:
    num_graphs = 5
    x = np.zeros((123, 7))


def make(*shape: int) -> Any:
    return np.zeros(shape)


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (make(8, 3), 8),
        ([make(8, 3), make(8)], 8),
        ((make(4, 4), make(8, 3), make(8)), 8),
        ({"image": make(8, 3), "label": make(8)}, 8),
        (UserDict(ids=make(8, 12)), 8),
        (Pair(make(8, 3), make(8)), 8),
        ({"a": {"b": [make(8, 2)]}}, 8),
        (Sample("x", make(8, 3), make(8, 4, 4)), 8),
        (Slotted(make(8, 3)), 8),
        (Graphs(), 5),
        ([1, 2, 3], 3),
        ({"text": ["a", "b"]}, 2),
        ("text", 0),
        (None, 0),
        (make(), 0),
    ],
)
def test_the_size_is_found(batch: Any, size: int) -> None:
    assert count_samples(batch) == size


@pytest.mark.parametrize("batch", [[make(4, 4), make(8, 3), make(8)], Graphs(), Sample("x", make(8, 3), make(8, 4))])
def test_the_way_found_is_good_for_the_next_batch(batch: Any) -> None:
    path, size = find_samples(batch)

    assert count_at(path, batch) == size


def test_the_majority_decides() -> None:
    assert count_samples([make(1), make(16, 3), make(16, 5)]) == 16


@pytest.mark.parametrize(
    ("batch", "asked", "size"),
    [
        (Sample("x", make(3, 8, 8), make(4, 4)), 1, 1),  # one sample, handed on bare
        ([Sample("x", make(3, 8, 8), make(4, 4))] * 4, 4, 4),
        ([{"image": make(3, 8, 8)}] * 4, 4, 4),
        (make(128, 32), 32, 32),  # time first
        ((make(2, 3), make(2)), 2, 2),
        ([make(6, 3), make(6)], 8, 6),  # the last batch of an epoch
        (make(8, 3), 0, 8),
    ],
)
def test_a_batch_is_never_larger_than_what_the_loader_asked_for(batch: Any, asked: int, size: int) -> None:
    assert find_samples(batch, asked)[1] == size


def test_a_long_list_of_parts_counts_the_samples_that_were_asked_for() -> None:
    boxes = [(make(4), make()) for _ in range(192)]

    assert find_samples(boxes, asked=16)[1] == 16


def test_the_bytes_of_a_batch_are_those_of_its_tensors_on_the_host() -> None:
    batch = {"x": torch.zeros(4, 8), "more": [torch.zeros(3, dtype=torch.uint8), np.zeros(100)], "name": "a"}

    assert tensor_bytes(batch) == 4 * 8 * 4 + 3
    assert tensor_bytes(torch.zeros(5, device="meta")) == 0


# Padding in batches of sequences, and whether the model computed it.


LENGTHS = [40, 12, 33, 25]


def tokens(pad: int = 0, lengths: list[int] | None = None, longest: int = 40) -> torch.Tensor:
    source = torch.Generator().manual_seed(1)
    rows = torch.full((len(lengths or LENGTHS), longest), pad)
    for row, length in zip(rows, lengths or LENGTHS, strict=True):
        row[:length] = torch.randint(5, 900, (length,), generator=source)
    return rows


MASK = (tokens() != 0).long()


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([tokens()], "ids"),
        ([tokens(pad=-100)], "ids"),
        ([tokens(pad=1).int()], "ids"),
        ([tokens().flip(1)], "ids"),  # filled up in front
        ([tokens(), MASK], "mask"),
        ([tokens(), MASK.bool(), torch.zeros(4, 40, dtype=torch.long)], "mask"),
        ([tokens(), torch.tensor([0, 1, 1, 0])], "ids"),
        ([torch.randn(4, 40, 80), MASK.float()], "mask"),
    ],
)
def test_the_lengths_are_found(parts: list[Any], kind: str) -> None:
    found = find_padding(torch, parts)

    assert found is not None and found["kind"] == kind
    assert (found["rows"], found["length"], found["lengths"]) == (4, 40, LENGTHS)


def test_an_end_mark_that_also_pads_is_no_trouble() -> None:
    rows = tokens(pad=2)
    rows[torch.arange(4), torch.tensor(LENGTHS) // 2] = 2

    found = find_padding(torch, [rows])

    assert found is not None and found["value"] == 2


@pytest.mark.parametrize(
    "parts",
    [
        [torch.randint(5, 900, (4, 40), generator=torch.Generator().manual_seed(0))],
        [torch.zeros(4, 40, dtype=torch.long)],
        [torch.nn.functional.one_hot(torch.tensor([3, 30, 18, 7]), 40)],
        [torch.randint(0, 2, (4, 40), generator=torch.Generator().manual_seed(0))],
        [1 - MASK],  # could be a mask of either kind
        [torch.randn(4, 3, 32, 32), tokens()],  # pictures with captions
        [tokens()[0]],
        [tokens()[:, :8]],
        [torch.randn(4, 40)],
        [],
    ],
)
def test_nothing_is_said_of_other_batches(parts: list[Any]) -> None:
    assert find_padding(torch, parts) is None


# The same for frames of features.

SPOKEN = [60, 22, 48, 35, 51, 22]


def frames(
    longest: int = 60, features: int = 40, pad: float = 0.0, lengths: list[int] | None = None, seed: int = 1
) -> torch.Tensor:
    rows = torch.randn(len(lengths or SPOKEN), longest, features, generator=torch.Generator().manual_seed(seed))
    for row, length in zip(rows, lengths or SPOKEN, strict=True):
        row[length:] = pad
    return rows


def with_a_flag() -> torch.Tensor:
    """Strokes of a pen: two coordinates, and whether it was lifted, which is mostly not so."""
    strokes = frames(features=3)
    strokes[:, :, 2] = 0
    strokes[:, 10, 2] = 1
    return strokes


def keys() -> torch.Tensor:
    """A pianist's: of 88 only a few are held at a time, some always."""
    played = torch.rand(6, 60, 88, generator=torch.Generator().manual_seed(1)) < 0.05
    played[:, :, 0] = True
    return played * (frames(features=1) != 0).float()


@pytest.mark.parametrize(
    "rows",
    [
        frames(),
        frames(pad=-11.5),
        frames(features=1).squeeze(2),
        frames(features=3),
        frames(features=60 * 12),
        with_a_flag(),
        frames().transpose(1, 2),
        frames().transpose(1, 2).contiguous(),
        frames().half(),
        frames().bfloat16(),
        frames().double(),
        frames(features=1).squeeze(2).sigmoid().mul(frames(features=1).squeeze(2) != 0),
    ],
)
def test_the_lengths_of_frames_are_found(rows: torch.Tensor) -> None:
    found = find_padding(torch, [rows, torch.tensor([0, 1, 1, 0, 1, 0])])

    assert found is not None and found["kind"] == "features"
    assert (found["rows"], found["length"], found["lengths"]) == (6, 60, SPOKEN)
    assert found["value"] in (0.0, -11.5)


@pytest.mark.parametrize(
    "rows",
    [frames(), frames(features=60), frames(features=1).squeeze(2), frames().transpose(1, 2), keys()],
)
def test_lengths_that_come_with_the_batch_are_surer(rows: torch.Tensor) -> None:
    rows[2, 46:] = 0  # the text itself ends in silence
    said, classes, high = torch.tensor([[9, 4, 7, 5, 8, 4], [3, 60, 11, 52, 7, 1], [60, 59, 56, 60, 57, 58]])
    ids = tokens(lengths=SPOKEN, longest=60)

    found = find_padding(torch, [ids, rows, said, classes, high, torch.tensor(SPOKEN, dtype=torch.int32)])

    assert found is not None and found["kind"] == "lengths"
    assert (found["rows"], found["length"], found["lengths"]) == (6, 60, SPOKEN)


def test_lengths_that_are_told_may_all_be_the_same() -> None:
    found = find_padding(torch, [frames(lengths=[40] * 6), torch.full((6,), 40)])

    assert found is not None and (found["kind"], found["length"], found["lengths"]) == ("lengths", 60, [40] * 6)


def test_of_many_rows_some_are_looked_at_and_all_lengths_told() -> None:
    lengths = [20 + at % 37 for at in range(300)]

    found = find_padding(torch, [frames(lengths=lengths)])
    told = find_padding(torch, [frames(lengths=lengths), torch.tensor(lengths)])

    assert found is not None and len(found["lengths"]) <= 64 and set(found["lengths"]) <= set(lengths)
    assert told is not None and told["lengths"] == lengths


def pictures(high: int = 28, wide: int = 28, top: int = 4, dark: tuple[int, ...] = (22, 24, 21, 25)) -> torch.Tensor:
    """Without a dimension for their one channel, like digits on black ground."""
    drawn = torch.rand(len(dark), high, wide, generator=torch.Generator().manual_seed(1)) + 0.1
    drawn[:, :top] = 0
    for picture, height in zip(drawn, dark, strict=True):
        picture[height:] = 0
    return drawn


def slanted() -> torch.Tensor:
    """Pictures whose dark bottom is not level."""
    drawn = pictures(48, 64, top=0, dark=(48,) * 6)
    for picture, height in zip(drawn, range(30, 42, 2), strict=True):
        for at in range(64):
            picture[height - at // 4 :, at] = 0
    return drawn


def one_hot() -> torch.Tensor:
    which = torch.randint(0, 64, (6, 60), generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.one_hot(which, 64).float()


@pytest.mark.parametrize(
    "rows",
    [
        frames(lengths=[60] * 6),
        frames(lengths=[40] * 6),  # what is always there is the border of something
        torch.zeros(6, 60, 40),
        torch.cat([torch.zeros(4, 60, 40), frames()]),
        frames(lengths=[59, 60, 60, 59, 60, 60]),  # no run
        pictures(),
        pictures(28, 20),
        pictures(32, 32, top=0),
        slanted(),
        slanted().transpose(1, 2),
        frames(lengths=[60] * 6).relu(),
        (frames(lengths=[60] * 6) - 2).relu(),  # sparse: whole frames are zero now and then
        one_hot(),
        one_hot().transpose(1, 2),
        torch.arange(6.0)[:, None, None].expand(6, 60, 40),
        frames() * torch.linspace(1, 2, 6)[:, None, None] + torch.arange(6.0)[:, None, None],  # each at its own value
        0.9 ** torch.arange(60.0).repeat(6, 1),  # curves that fall from one
        frames(lengths=[9, 5, 12, 7], longest=12, features=8),
        torch.randn(4, 0, 40),
        torch.randn(4, 40, 0),
    ],
)
def test_nothing_is_said_of_frames_that_are_no_padding(rows: torch.Tensor) -> None:
    assert find_padding(torch, [rows]) is None
    assert find_padding(torch, [rows, torch.arange(len(rows)) + 1]) is None


@pytest.mark.parametrize(
    ("shapes", "computed"),
    [
        ({(4, 40, 16), (4, 12)}, True),
        ({(4, 39, 16)}, True),
        ({(160, 12)}, True),
        ({(40, 4, 16)}, True),
        ({(4, 20, 16), (4, 40)}, False),
    ],
)
def test_the_graph_tells_whether_it_was_computed(shapes: set[tuple[int, ...]], computed: bool) -> None:
    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]

    look.look(3, {"input_ids": tokens(), "labels": torch.zeros(4)})
    look.note_graph(shapes)
    look.note_graph(shapes)

    ((what, value),) = notes.texts
    assert what == "padding"
    assert (value["loader"], value["computed"], value["lengths"]) == (3, computed, LENGTHS)


@pytest.mark.parametrize(
    ("shapes", "computed"),
    [
        ({(6, 60, 16)}, True),
        ({(60, 6, 16)}, True),
        ({(6, 16, 60)}, True),
        ({(360, 16)}, True),
        ({(6, 30, 16), (6, 12)}, True),  # behind a stride of two
        ({(6, 16, 21)}, True),
        ({(15, 6, 16)}, True),
        ({(6, 32, 15, 10)}, True),
        ({(180, 12)}, True),
        ({(6, 9, 100)}, False),  # 60 / 8: too short to tell
        ({(6, 50, 64), (6, 25, 30)}, False),  # cut to 50 frames and halved; 30 is the width of a layer
        ({(300, 12), (50, 6, 60)}, False),
        ({(6, 12), (6, 60), (1, 60)}, False),
    ],
)
def test_frames_may_be_fewer_behind_a_stride(shapes: set[tuple[int, ...]], computed: bool) -> None:
    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]
    lengths = torch.tensor([50, 22, 48, 35, 41, 22])

    look.look(3, (frames(lengths=lengths.tolist()), lengths))
    look.note_graph(shapes)

    ((_, value),) = notes.texts
    assert (value["kind"], value["computed"]) == ("lengths", computed)


def test_more_batches_are_looked_at_once_a_step_has_computed_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1)
    monkeypatch.setattr(batches, "perf_counter", lambda: next(ticks) / 1000)
    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]

    assert not look.is_due()
    look.look(3, [tokens()])
    look.note_graph({(4, 16)})  # cut off
    assert not look.is_due()
    look.look(3, [tokens()])
    look.note_graph({(4, 40, 16)})
    while not look.is_due():
        pass
    look.look_again(5, [tokens()])
    for _ in range(3):
        look.look_again(3, [tokens()])
        assert not look.is_due()  # not at once: what looking takes is bounded
        while not look.is_due():
            pass

    assert [value["computed"] for _, value in notes.texts] == [False, True, True, True, True]
    assert {value["loader"] for _, value in notes.texts} == {3}
    for _ in range(100):
        look.look_again(3, [tokens()])
        if len(notes.texts) == 64:
            assert not look.is_due()
            return
    raise AssertionError("looked at without end")


def test_a_batch_that_raises_and_a_pass_without_a_backward_are_no_trouble() -> None:
    class Trap:
        @property
        def shape(self) -> Any:
            raise RuntimeError("not now")

    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]

    look.look(1, [Trap()])
    look.note_graph(())
    for _ in range(100):
        look.look(1, [tokens()])
    look.note_graph({(4, 40, 16)})
    look.look(1, [tokens()])
    look.note_graph({(4, 40, 16)})

    assert len(notes.texts) == 1


def _view() -> Any:
    return make(3, 64, 64)


def _target(boxes: int) -> dict[str, Any]:
    return {"boxes": make(boxes, 4), "labels": make(boxes)}


@pytest.mark.parametrize(
    "batch",
    [
        # Collated by `tuple`, by `list`, and by `lambda samples: tuple(zip(*samples))`, as detectors have them.
        tuple((_view(), _target(boxes)) for boxes in range(1, 9)),
        [(_view(), make()) for _ in range(8)],
        (tuple(_view() for _ in range(8)), tuple(_target(boxes) for boxes in range(8))),
        [[_view() for _ in range(8)], [make() for _ in range(8)]],
    ],
)
def test_samples_that_are_not_stacked_are_counted(batch: Any) -> None:
    assert find_samples(batch, asked=8)[1] == 8


def test_views_of_one_batch_are_not_samples() -> None:
    assert find_samples(([make(8, 3), make(8, 3)], make(8)), asked=8)[1] == 8
    assert find_samples([[make(8, 3), make(8, 3)], [make(8), make(8)]], asked=16)[1] == 8


def test_a_view_carries_all_of_its_storage() -> None:
    recording = torch.zeros(1000)

    assert carried_bytes(recording) == (4000, 4000)
    assert carried_bytes(recording[10:20]) == (40, 4000)
    assert carried_bytes({"motion": {"x": recording[10:20].view(2, 5)}, "labels": [torch.zeros(3)]}) == (52, 4012)


def test_a_storage_is_carried_once_and_never_shows_more_than_it_has() -> None:
    recording = torch.zeros(1000)

    assert carried_bytes((recording[:10], recording[5:25])) == (120, 4000)
    assert carried_bytes([recording, recording]) == (4000, 4000)
    assert carried_bytes(torch.zeros(1).expand(50)) == (4, 4)


def test_what_is_shared_already_carries_nothing() -> None:
    recording = torch.zeros(1000).share_memory_()

    assert carried_bytes((recording[:10], torch.zeros(5))) == (20, 20)


def test_arrays_and_tensors_without_a_storage_carry_nothing() -> None:
    sparse, elsewhere = torch.eye(3).to_sparse(), torch.empty(9, device="meta")

    assert carried_bytes([np.zeros(1000)[:10], sparse, elsewhere, "name", 3, None]) == (0, 0)
