"""Which policy suits a sampler, how well each does against its theory, and that a watched sampler draws as before."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache.dataset import cached, foresee, is_cached, unwrap, wrap
from flatout.feed.cache.policy import _belady, choose, foreseen_hits, keep_hit_rate, lru_hit_rate
from flatout.feed.cache.segment import TABLE_AT
from flatout.feed.cache.table import release_all
from flatout.feed.reasons import say
from tests.unit.feed.keeping import folder

__all__ = ["folder"]  # a fixture

SAMPLES = 400
SAMPLE_BYTES = 2048
LABELS = list(range(SAMPLES))


class Constant(data.Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        sum(range(4000))  # what takes no time is not worth a cache
        return torch.full((SAMPLE_BYTES,), index % 256, dtype=torch.uint8), index


def budget_for(places: int) -> int:
    """Enough for that many samples; the last page may hold one more."""
    return (TABLE_AT + SAMPLES * 8) * 8 + 4096 + places * (SAMPLE_BYTES + 128)


def distributed(ranks: int) -> data.DistributedSampler[Any]:
    return data.DistributedSampler(Constant(), num_replicas=ranks, rank=0, seed=3)


@pytest.mark.parametrize(
    ("sampler", "local_ranks", "expected"),
    [
        (None, "1", "keep"),
        (data.SequentialSampler(LABELS), "1", "keep"),
        (data.RandomSampler(LABELS), "1", "keep"),
        (data.BatchSampler(data.RandomSampler(LABELS), 4, False), "1", "keep"),
        (data.SubsetRandomSampler(LABELS), "1", "keep"),
        (data.RandomSampler(LABELS, replacement=True), "1", "clairvoyant"),
        (data.WeightedRandomSampler([1.0] * SAMPLES, 10), "1", "clairvoyant"),
        (data.WeightedRandomSampler([1.0] * SAMPLES, 10), "2", "lru"),
        (distributed(2), "2", "keep"),
        (distributed(4), "2", "clairvoyant"),
    ],
)
def test_the_sampler_decides_on_the_policy(sampler: Any, local_ranks: str, expected: str) -> None:
    assert choose(sampler, {"LOCAL_WORLD_SIZE": local_ranks}) == expected


def hit_rate(wrapped: Any, order: list[int]) -> float:
    before = wrapped.stats().hits
    for index in order:
        assert wrapped[index][1] == index
    return (wrapped.stats().hits - before) / len(order)


@pytest.mark.parametrize("fraction", [0.5, *(pytest.param(one, marks=pytest.mark.variant) for one in (0.25, 0.75))])
def test_keep_and_lru_reach_their_theory_under_shuffling(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every load takes as long as any other. What a busy machine delays twice would be exchanged for another.
    monkeypatch.setattr(time, "perf_counter_ns", itertools.count(0, 60_000).__next__)
    shuffle = np.random.default_rng(0).permutation
    orders = [shuffle(SAMPLES).tolist() for _ in range(7)]
    for policy, theory in (("keep", keep_hit_rate), ("lru", lru_hit_rate)):
        wrapped = cached(Constant(), budget_for(int(fraction * SAMPLES)), policy=policy)
        hit_rate(wrapped, orders[0])

        rates = [hit_rate(wrapped, order) for order in orders[1:]]

        # A finite shuffle scatters about LRU's limit; that it is exactly LRU is shown elsewhere.
        assert np.mean(rates) == pytest.approx(theory(fraction), abs=0.01 if policy == "keep" else 0.03)
        release_all()


def test_lru_s_limit_is_the_known_one() -> None:
    assert lru_hit_rate(0.5) == pytest.approx(0.5 + 0.5 * math.log(0.5))
    assert lru_hit_rate(1.0) == 1.0


def test_foreseeing_a_weighted_order_comes_close_to_belady() -> None:
    weights = np.random.default_rng(0).pareto(1.0, SAMPLES) + 0.05
    order = np.random.default_rng(1).choice(SAMPLES, 6000, p=weights / weights.sum()).tolist()
    places = 60
    hits, _ = foreseen_hits(order, places)
    wrapped = cached(Constant(), budget_for(places), policy="clairvoyant")

    foresee(wrapped, order, weights)
    rate = hit_rate(wrapped, order)
    stats = wrapped.stats()

    assert rate == pytest.approx(hits / len(order), abs=0.01)
    assert stats.predicted_hit_rate == pytest.approx(stats.warm_hit_rate, abs=0.01)
    assert stats.evictions > 0
    del wrapped
    release_all()
    assert rate > hit_rate(cached(Constant(), budget_for(places), policy="lru"), order) + 0.03


def test_long_orders_are_foreseen_by_a_choice_of_samples() -> None:
    order = np.random.default_rng(1).integers(0, 20_000, 150_000).tolist()

    hits, again = foreseen_hits(order, 4_000)
    exact_hits, exact_again = _belady(order, 4_000, (), set())

    assert hits / again == pytest.approx(exact_hits / exact_again, abs=0.01)


def test_a_plan_that_cannot_be_written_is_no_reason_to_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    loader = data.DataLoader(Constant(), sampler=data.WeightedRandomSampler([1.0] * SAMPLES, 50), batch_size=10)
    wrap(loader, {"budget": "4MB"}, lambda fact: notes.append(say(fact)))
    monkeypatch.setattr("flatout.feed.cache.policy._write_all", lambda fd, data: (_ for _ in ()).throw(OSError("full")))

    assert sum(len(labels) for _, labels in loader) == 50
    assert len(notes) == 1 and "full" in notes[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.WeightedRandomSampler(torch.rand(SAMPLES).tolist(), 120),
        lambda: data.RandomSampler(Constant(), replacement=True, num_samples=100),
        lambda: distributed(3),
        lambda: data.RandomSampler(Constant()),
    ],
)
def test_a_wrapped_loader_gives_the_same_batches_and_comes_apart_again(make: Any) -> None:
    torch.manual_seed(0)
    sampler = make()
    loader = data.DataLoader(Constant(), sampler=sampler, batch_size=10)
    kind, dataset = type(sampler), loader.dataset
    state = torch.get_rng_state()
    expected = [labels.tolist() for _ in range(2) for _, labels in loader]
    after = torch.get_rng_state()

    assert wrap(loader, {"budget": "4MB"}) is loader
    assert is_cached(loader.dataset) and isinstance(loader.sampler, kind)
    torch.set_rng_state(state)
    given = [labels.tolist() for _ in range(2) for _, labels in loader]

    assert given == expected and torch.equal(torch.get_rng_state(), after)
    stats: Any = loader.dataset.stats()  # type: ignore[attr-defined]
    assert stats.hits > 0
    unwrap(loader)
    assert loader.dataset is dataset and type(sampler) is kind and "_flatout_publish" not in vars(sampler)


def test_a_host_that_gets_other_samples_every_epoch_foresees_them() -> None:
    sampler = distributed(4)
    loader = data.DataLoader(Constant(), sampler=sampler, batch_size=10)
    wrap(loader, {"budget": budget_for(50)})
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for _ in loader:
            pass

    stats: Any = loader.dataset.stats()  # type: ignore[attr-defined]
    assert stats.policy == "clairvoyant" and stats.evictions > 0
    # Chance is 50 of 400 places; knowing the next epochs is better.
    assert stats.hits / (stats.hits + stats.misses) > 0.2
