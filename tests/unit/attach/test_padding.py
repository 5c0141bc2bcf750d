"""Padding in batches of sequences, and whether the model computed it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flatout.attach.batch import PaddingInspector, find_padding

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


class Notes:
    """Stands for a recording."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, Any]] = []

    def text(self, what: str, value: object) -> None:
        self.texts.append((what, value))


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
