"""Whatever feeds an unmodified training, its samples, losses, random numbers and weights are the same bit by bit.

Not the whole product of settings is run, but rows in which every pair of settings occurs.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, WeightedRandomSampler

import flatout.feed as feed
from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cached
from flatout.feed.cache.segment import SHARED_MEMORY
from flatout.feed.cache.table import release_all
from flatout.feed.iterator import FeedIterator
from flatout.records.message import restore
from flatout.remedies.applying import Applied
from flatout.remedies.catalogue import remedies
from flatout.words import english
from tests.integration.watching import Run, Watch

SAMPLES, BATCH, EPOCHS = 38, 4, 3
AXES: dict[str, tuple[Any, ...]] = {
    "way": ("remedies", "library"),
    "workers": (0, 1, 3, "auto"),
    "persistent": (False, True),
    "pin": (False, True),
    "prefetch": (None, 4),
    "cache": (False, True),
    "resume": (None, 3, SAMPLES // BATCH + 1),
    "order": ("shuffled", "own generator", "weighted"),
}


class Squares(Dataset[Any]):
    """Slow enough to be worth workers."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0005)
        return torch.full((3,), float(index * index)) / SAMPLES**2, index


class Drawing(Squares):
    def __getitem__(self, index: int) -> Any:
        sample, label = super().__getitem__(index)
        return sample + torch.rand(3), label


class OwnGenerator(Squares):
    """Draws from a generator that nobody else sees."""

    def __init__(self) -> None:
        self.random = numpy.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        sample, label = super().__getitem__(index)
        return sample + float(self.random.random()), label


class Training:
    """A script's loop. `resume`: after so many batches all is saved, and a process made anew goes on from there."""

    def __init__(self, make_loader: Callable[[dict[str, Any]], Any], order: str) -> None:
        self._make_loader = make_loader
        self._order = order
        self._begin()

    def _begin(self) -> None:
        torch.manual_seed(3)
        random.seed(3)
        numpy.random.seed(3)
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        settings: dict[str, Any] = {"shuffle": True}
        if self._order == "own generator":
            settings["generator"] = torch.Generator().manual_seed(7)
        if self._order == "weighted":
            settings = {"sampler": WeightedRandomSampler([1.0 + i for i in range(SAMPLES)], SAMPLES)}
        self.loader = self._make_loader(settings)

    def run(self, resume: int | None = None) -> list[Any]:
        self.seen: list[Any] = []
        epoch = 0
        while epoch < EPOCHS:
            saved = self._epoch(resume)
            if saved is None:
                epoch += 1
                continue
            # After the last batch of an epoch the state is that of the next one's beginning.
            resume, epoch = None, saved["loader"]["epoch"]
            self._go_on(saved)
        return [*self.seen, _digest(self.model.weight), *_random_states()]

    def _epoch(self, resume: int | None) -> dict[str, Any] | None:
        for batch, labels in self.loader:
            loss = nn.functional.dropout(self.model(batch), 0.3).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.seen.append((labels.tolist(), _digest(batch), loss.item().hex(), torch.rand(1).item().hex()))
            if len(self.seen) == resume:
                return self._save()
        return None

    def _save(self) -> dict[str, Any]:
        return {
            "loader": self.loader.state_dict(),
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "random": (torch.get_rng_state(), random.getstate(), numpy.random.get_state()),
        }

    def _go_on(self, state: dict[str, Any]) -> None:
        self._begin()
        self.loader.load_state_dict(state["loader"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"][0])
        random.setstate(state["random"][1])
        numpy.random.set_state(state["random"][2])


def _digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()


def _random_states() -> list[str]:
    states = (torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy.random.get_state())
    return [hashlib.sha256(repr(state).encode()).hexdigest() for state in states]


def bare(order: str, dataset: type = Squares) -> list[Any]:
    return Training(lambda settings: TorchLoader(dataset(), BATCH, **settings), order).run()


@contextmanager
def in_force(profile: dict[str, Any]) -> Iterator[dict[str, dict[str, Any]]]:
    """The profile's remedies, as in a run; gives what becomes of each."""
    told: dict[str, dict[str, Any]] = {}
    profile = {remedy.id: profile[remedy.id] for remedy in remedies() if remedy.id in profile}  # in their order
    applied = Applied(torch, profile, Patches, imports.after_import, lambda one: told.update({str(one["id"]): one}))
    applied.apply()
    try:
        yield told
        applied.tell()
    finally:
        applied.revert()


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that no other test has a part in."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as name:
        monkeypatch.setattr(cache_place, "SHARED_MEMORY", name)
        yield
        release_all()


def _rows() -> list[dict[str, Any]]:
    """So many rows of the product that every pair of values occurs in one."""
    names = list(AXES)
    product = [dict(zip(names, row, strict=True)) for row in itertools.product(*AXES.values())]
    possible = [row for row in product if row["way"] == "library" or row["resume"] is None]

    def pairs(row: dict[str, Any]) -> set[Any]:
        return set(itertools.combinations(row.items(), 2))

    missing = set().union(*map(pairs, possible))
    rows = []
    while missing:
        best = max(possible, key=lambda row: len(pairs(row) & missing))
        missing -= pairs(best)
        rows.append(best)
    return rows


def _profile(row: dict[str, Any]) -> dict[str, Any]:
    wanted = {
        "loader.workers": row["workers"] or None,
        "loader.persistent": row["persistent"] or None,
        "loader.prefetch": row["prefetch"],
        "loader.cache": {} if row["cache"] else None,
        # Without a CUDA device both refuse and must leave all as it is.
        "loader.pin": row["pin"] or None,
        "transfer.prefetch": row["pin"] or None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _library_loader(row: dict[str, Any], settings: dict[str, Any]) -> Any:
    tuned = row["workers"] == "auto"
    workers = 1 if tuned else row["workers"]
    if workers:
        settings |= {"persistent_workers": row["persistent"], "prefetch_factor": row["prefetch"]}
    dataset = cached(Squares()) if row["cache"] else Squares()
    return feed.DataLoader(
        dataset, BATCH, num_workers=workers, pin_memory=row["pin"], compensate=True, tune=tuned, **settings
    )


@pytest.mark.filterwarnings("ignore:.*pin_memory.*", "ignore:This DataLoader will create")
@pytest.mark.parametrize("row", _rows(), ids=lambda row: " ".join(str(value) for value in row.values()))
def test_every_pair_of_settings_trains_the_same(row: dict[str, Any]) -> None:
    if row["way"] == "library":
        fed = Training(lambda settings: _library_loader(row, settings), row["order"]).run(row["resume"])
    else:
        with in_force(_profile(row)) as told:
            training = Training(lambda settings: TorchLoader(Squares(), BATCH, **settings), row["order"])
            fed = training.run()
            workers, kept = training.loader.num_workers, training.loader.persistent_workers

        assert (workers > 0) == bool(row["workers"])
        assert kept == (workers > 0 and (row["persistent"] or row["workers"] == "auto"))
        assert {one["state"] for name, one in told.items() if not _needs_cuda(name)} <= {"applied"}
        assert {one["state"] for name, one in told.items() if _needs_cuda(name)} <= {"refused"}

    assert fed == bare(row["order"])


def _needs_cuda(name: str) -> bool:
    return name in ("loader.pin", "transfer.prefetch") and not torch.cuda.is_available()


class OwnWay(TorchLoader[Any]):
    """Iterates as it likes, so that it stays with torch's workers."""

    def __iter__(self) -> Any:
        return super().__iter__()


@pytest.mark.parametrize(
    "profile", [{"loader.workers": 2, "loader.persistent": True}, {"loader.workers": "auto"}], ids=str
)
@pytest.mark.parametrize("order", AXES["order"])
def test_torchs_workers_that_are_kept_train_the_same(profile: dict[str, Any], order: str) -> None:
    with in_force(profile):
        training = Training(lambda settings: OwnWay(Squares(), BATCH, **settings), order)
        fed = training.run()

        assert training.loader.num_workers > 0 and training.loader.persistent_workers
        assert not isinstance(training.loader._iterator, FeedIterator)
    assert fed == bare(order)


def test_what_is_compared_would_show_workers_that_are_kept_without_a_draw() -> None:
    def kept(settings: dict[str, Any]) -> Any:
        return TorchLoader(Squares(), BATCH, num_workers=1, persistent_workers=True, **settings)

    assert Training(kept, "shuffled").run() != bare("shuffled")


def test_a_loader_that_keeps_its_workers_by_itself_draws_as_it_did() -> None:
    def make(settings: dict[str, Any]) -> Any:
        return TorchLoader(Squares(), BATCH, num_workers=1, persistent_workers=True, **settings)

    alone = Training(make, "shuffled").run()
    with in_force({"loader.persistent": True, "loader.workers": 2}):
        remedied = Training(make, "shuffled").run()

    assert remedied == alone


def test_random_transforms_draw_others_and_that_is_told() -> None:
    runs = []
    for _ in range(2):
        with in_force({"loader.workers": "auto"}) as told:
            runs.append(Training(lambda settings: TorchLoader(Drawing(), BATCH, **settings), "shuffled").run())

    assert "not the same random numbers" in english(restore(told["loader.workers"]["live"]["randomness"]))
    assert runs[0] == runs[1]  # by their place in the epoch, whoever loads them
    orders = [[labels for labels, *_ in seen[:-4]] for seen in (runs[0], bare("shuffled", Drawing))]
    assert orders[0][: SAMPLES // BATCH] == orders[1][: SAMPLES // BATCH]


def test_random_transforms_by_worker_are_those_of_torchs_workers() -> None:
    def by_hand(settings: dict[str, Any]) -> Any:
        return TorchLoader(Drawing(), BATCH, num_workers=2, **settings)

    with in_force({"loader.workers": 2}):
        remedied = Training(lambda settings: TorchLoader(Drawing(), BATCH, **settings), "shuffled").run()

    assert remedied == Training(by_hand, "shuffled").run()


def test_samples_that_differ_from_reading_to_reading_get_no_workers() -> None:
    with in_force({"loader.workers": "auto"}) as told:
        training = Training(lambda settings: TorchLoader(OwnGenerator(), BATCH, **settings), "shuffled")
        fed = training.run()

    assert fed == bare("shuffled", OwnGenerator)
    live = [restore(value) for value in told["loader.workers"]["live"].values()]
    assert any("left alone: a sample read again" in english(value) for value in live)


@pytest.fixture(scope="module")
def bare_ranks(run_bare: Run) -> list[dict[str, Any]]:
    return _by_rank(run_bare("torchrun", "--standalone", "--nproc-per-node", "2", "ranks_order.py").told("TRUTH"))


def _by_rank(truths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(truths, key=lambda truth: truth["rank"])


@pytest.mark.parametrize(
    "wanted",
    [
        ("loader.workers=auto", "loader.cache=true"),
        pytest.param(("loader.workers=2", "loader.persistent=true", "loader.prefetch=3"), marks=pytest.mark.variant),
    ],
    ids=" ".join,
)
def test_two_ranks_train_the_same(watch: Watch, bare_ranks: list[dict[str, Any]], wanted: tuple[str, ...]) -> None:
    options = tuple(word for remedy in wanted for word in ("--remedy", remedy))

    seen = watch("torchrun", "--standalone", "--nproc-per-node", "2", "ranks_order.py", options=options)

    assert seen.returncode == 0, seen.stderr
    assert {one["state"] for one in seen.json["remedies"]} == {"applied"}
    ranks = _by_rank(seen.told("TRUTH"))
    assert all(truth["workers"] > 0 for truth in ranks)
    for what in ("seen", "losses", "after"):
        assert [truth[what] for truth in ranks] == [truth[what] for truth in bare_ranks]
