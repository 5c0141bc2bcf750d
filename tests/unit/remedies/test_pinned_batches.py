"""Which tensors came out of a loader, and whether they were written into after their copy."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch

from flatout.remedies.site import Refused
from flatout.remedies.transfer.async_copies import PinnedBatches, leaves_blocking_open
from tests.unit.remedies.applied import applied

Batch = namedtuple("Batch", "image label")


class Own:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def test_tensors_are_found_wherever_they_are() -> None:
    batches = PinnedBatches(torch)
    tensors = [torch.zeros(2) for _ in range(6)]

    batches.came({"a": tensors[0], "b": [tensors[1], (tensors[2], 3)], "c": Batch(*tensors[3:5]), "d": Own(tensors[5])})

    assert all(map(batches.has, tensors))
    assert not batches.has(tensors[0].clone()) and not batches.has(tensors[0][:1])


def test_nothing_is_kept_alive() -> None:
    batches = PinnedBatches(torch)
    batches.came([torch.zeros(2) for _ in range(50)])

    assert batches._known == {}


def test_a_write_after_the_copy_is_seen() -> None:
    batches, tensor = PinnedBatches(torch), torch.zeros(2)
    batches.came(tensor)
    tensor.add_(1)

    batches.note_copy(tensor)
    before = batches.written_after_copy()
    tensor.add_(1)

    assert (before, batches.written_after_copy()) == (False, True)


def test_batches_that_are_gone_are_forgotten() -> None:
    batches = PinnedBatches(torch)
    for _ in range(10):
        tensor = torch.zeros(2)
        batches.came(tensor)
        batches.note_copy(tensor)

    assert not batches.written_after_copy()
    assert len(batches._copied) == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "silent"),
    [
        (("cuda",), {}, True),
        (("cuda", torch.float16), {}, True),
        (("cuda", torch.float16, False), {}, False),
        (("cuda",), {"non_blocking": False}, False),
        (("cuda",), {"non_blocking": True}, False),
        ((), {"device": "cuda", "memory_format": torch.channels_last}, True),
        ((0,), {}, True),
    ],
)
def test_the_scripts_own_word_stays(args: tuple[object, ...], kwargs: dict[str, object], silent: bool) -> None:
    assert leaves_blocking_open(args, kwargs) is silent


@pytest.mark.parametrize("name", ["transfer.async", "sync.defer", "sync.skip"])
@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_without_cuda_it_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="no CUDA"), applied(name):
        pass
