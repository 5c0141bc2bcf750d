"""One cache for all workers and ranks of a host, and batches that are the same to the bit with and without it."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cached, is_cached, wrap
from flatout.feed.cache.segment import SHARED_MEMORY
from flatout.feed.cache.table import release_all

SAMPLES = 48


class Logged(data.Dataset[Any]):
    """Writes down every load, whichever process does it."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        # No attribute: a file that grows would be other data at every look.
        with open(os.environ["LOADS"], "ab") as file:
            file.write(b"%d\n" % index)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 16, 16, generator=generator), index % 7


class Flipped(Logged):
    def __init__(self) -> None:
        self.transform = Compose([halved, flipped])

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return self.transform(image), label


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value


def halved(value: torch.Tensor) -> torch.Tensor:
    return value / 2


def flipped(value: torch.Tensor) -> torch.Tensor:
    return value.flip(2) if torch.rand(1) < 0.5 else value


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where loads are written down; the shared memory is one that no other test has a part in."""
    monkeypatch.setenv("LOADS", str(tmp_path / "loads"))
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as name:
        monkeypatch.setattr(cache_place, "SHARED_MEMORY", name)
        yield tmp_path / "loads"
        release_all()
        assert os.listdir(name) == []


def loads(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def digests(loader: Any, epochs: int = 2) -> list[str]:
    torch.manual_seed(7)
    return [hashlib.sha256(images.numpy().tobytes()).hexdigest() for _ in range(epochs) for images, _ in loader]


@pytest.mark.parametrize(
    ("kind", "workers", "context", "persistent"),
    [
        (Logged, 0, None, False),
        (Logged, 2, "fork", False),
        (Flipped, 0, None, False),
        (Flipped, 2, "fork", False),
        (Flipped, 2, "fork", True),
        (Flipped, 1, "spawn", True),
    ],
)
def test_batches_are_the_same_with_and_without_the_cache(
    log: Path, kind: type[Logged], workers: int, context: str | None, persistent: bool
) -> None:
    dataset = kind()
    options: dict[str, Any] = {"batch_size": 6, "shuffle": True, "num_workers": workers}
    options |= {"multiprocessing_context": context, "persistent_workers": persistent}
    if context == "spawn":
        # Their batches do not depend on how the workers were started.
        expected = digests(data.DataLoader(dataset, **options | {"multiprocessing_context": "fork"}))
    else:
        expected = digests(data.DataLoader(dataset, **options))

    loader = wrap(data.DataLoader(dataset, **options), {"budget": "8MB"})
    assert is_cached(loader.dataset)
    # Looking at a few samples, before anything is kept, reads some of them.
    log.write_text("")
    given = digests(loader)

    assert given == expected
    assert sorted(loads(log)) == list(range(SAMPLES)), "each was loaded once, in whatever worker"
    stats = loader.dataset.stats()
    assert (stats.hits, stats.misses) == (SAMPLES, SAMPLES)


def test_two_ranks_with_workers_share_one_cache(log: Path) -> None:
    # Held open here, so that the count can be read when both have ended.
    here = cached(Logged(), "8MB")
    log.write_text("")

    def rank(number: int, epochs: int) -> None:
        own = Logged()
        sampler: Any = data.DistributedSampler(own, 2, number, seed=1)
        loader = wrap(data.DataLoader(own, batch_size=4, sampler=sampler, num_workers=2), {"budget": "8MB"})
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                assert len(images) == len(labels)

    run_all([lambda: rank(0, 1), lambda: rank(1, 1)])
    run_all([lambda: rank(0, 3), lambda: rank(1, 3)])

    assert here.stats().items == SAMPLES and here.stats().corrupt == 0
    # Each of the four looked at 4 samples, two times and once more; apart from that all loads were the first.
    looked_at = {0, 16, 31, 47}
    read = loads(log)
    assert all(read.count(index) == 1 for index in set(range(SAMPLES)) - looked_at)
    assert here.stats().misses == SAMPLES and here.stats().hits == 3 * SAMPLES


def run_all(functions: list[Callable[[], None]]) -> None:
    """Each in a process of its own, at the same time."""
    children = []
    for function in functions:
        child = os.fork()
        if child == 0:
            try:
                # A rank is a process that knows nothing of another's caches.
                release_all()
                function()
                release_all()
                os._exit(0)
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
                os._exit(1)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
