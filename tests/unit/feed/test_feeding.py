"""What cannot have workers is told beforehand, in words; what can is let through."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from flatout.feed.feeding import why_no_workers
from flatout.remedies.loader.arguments import LeftAlone
from flatout.remedies.loader.workers import refuse_hazards
from flatout.words import english


class Stream(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class InAStaticMethod(Stream):
    @staticmethod
    def worker() -> Any:
        return data.get_worker_info()


class InANestedFunction(Stream):
    def __iter__(self) -> Iterator[int]:
        def mine() -> Iterator[int]:
            info = data.get_worker_info()
            yield from range(info.id if info else 0, 10)

        return mine()


class InAnArgument(Stream):
    def __init__(self, nodesplitter: Any = None) -> None:
        self.split = nodesplitter


class Inherited(InAStaticMethod):
    pass


class Odd(data.Dataset[int]):
    """Raises what it likes when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no copies")


def share(worker: int, step: int = 1) -> None:
    info: Any = data.get_worker_info()
    info.dataset.start = worker * step


def seed(worker: int) -> None:
    torch.manual_seed(worker)


@pytest.mark.parametrize("kind", [InAStaticMethod, InANestedFunction, InAnArgument, Inherited])
def test_a_stream_that_speaks_of_workers_may_have_them(kind: type[Stream]) -> None:
    assert why_no_workers(kind(), None, None, "fork") is None


@pytest.mark.parametrize(("first", "is_refused"), [(None, True), (seed, True), (share, False)])
def test_what_every_worker_calls_first_may_share_the_stream_out(first: Any, is_refused: bool) -> None:
    assert (why_no_workers(Stream(), None, first, "fork") is not None) == is_refused
    if first is not None:
        assert (why_no_workers(Stream(), None, functools.partial(first), "fork") is not None) == is_refused


def test_whatever_is_raised_when_it_is_pickled_is_the_reason() -> None:
    why = why_no_workers(Odd(), None, None, "spawn")

    assert why is not None and english(why) == (
        "its dataset cannot be sent to workers started by 'spawn': RuntimeError: no copies"
    )
    assert why_no_workers(Odd(), None, None, "fork") is None


@pytest.mark.parametrize("context", ["spawn", torch.multiprocessing.get_context("spawn")])
def test_a_remedy_leaves_such_a_loader_alone_with_the_same_words(context: Any) -> None:
    arguments = {"dataset": Odd(), "multiprocessing_context": context}

    with pytest.raises(LeftAlone, match="its dataset cannot be sent to workers started by 'spawn'"):
        refuse_hazards(torch, arguments)

    refuse_hazards(torch, {"dataset": Odd(), "multiprocessing_context": "fork"})


def test_a_dataset_on_the_gpu_is_left_alone() -> None:
    class OnGpu(data.Dataset[int]):
        def __init__(self) -> None:
            self.images = type("Tensor", (), {"is_cuda": True})()

    with pytest.raises(LeftAlone, match="tensors on the GPU"):
        refuse_hazards(torch, {"dataset": OnGpu()})
