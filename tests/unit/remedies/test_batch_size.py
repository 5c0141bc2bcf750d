"""Larger batches for training loaders, and learning rates raised for the length of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from tests.unit.remedies.applied import applied, live_in_english

DATA = TensorDataset(torch.arange(1000.0))
TWICE = {"times": 2, "rate": "linear"}


def test_loaders_in_random_order_get_larger_batches() -> None:
    with applied("batch.size", TWICE) as site:
        train = DataLoader(DATA, 16, True)
        test = DataLoader(DATA, batch_size=16)

    assert (train.batch_size, test.batch_size) == (32, 16)
    assert len(train) == 32
    assert any(str(told) == "batch_size 16 → 32" for told in live_in_english(site).values())


def test_a_loader_made_again_from_another_is_not_made_larger_twice() -> None:
    with applied("batch.size", TWICE):
        first = DataLoader(DATA, 16, True)
        again = DataLoader(first.dataset, first.batch_size, sampler=first.sampler)

    assert again.batch_size == 32


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"batch_size": 1, "shuffle": True}, "a batch of one"),
        ({"batch_size": 80, "shuffle": True}, "less than 10 batches of 160"),
        ({"batch_sampler": [[1, 2], [3]]}, "no batch size of its own"),
    ],
)
def test_what_is_left_alone_is_told(arguments: dict[str, Any], why: str) -> None:
    with applied("batch.size", TWICE) as site:
        loader = DataLoader(DATA, **arguments)

    assert loader.batch_size == arguments.get("batch_size")
    assert any("left alone" in str(told) and why in str(told) for told in live_in_english(site).values())


def test_a_sampler_in_order_is_an_evaluations() -> None:
    with applied("batch.size", TWICE):
        loader = DataLoader(DATA, 16, sampler=SequentialSampler(DATA))

    assert loader.batch_size == 16


@pytest.mark.parametrize(("rate", "factor"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)])
def test_a_step_is_made_with_the_raised_rate_and_the_script_sees_its_own(rate: str, factor: float) -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)

    with applied("batch.size", {"times": 4, "rate": rate}):
        weight.grad = torch.ones(1)
        optimizer.step()
        after_first, seen = weight.item(), optimizer.param_groups[0]["lr"]
        schedule.step()
        optimizer.step()

    assert (after_first, seen) == (-0.5 * factor, 0.5)
    assert weight.item() == pytest.approx(-0.55 * factor)
    optimizer.step()
    assert weight.item() == pytest.approx(-0.55 * factor - 0.05)


def test_a_step_that_raises_leaves_no_trace() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def closure() -> float:
        raise KeyError("the script's own")

    with applied("batch.size", TWICE):
        with pytest.raises(KeyError):
            optimizer.step(closure)
        weight.grad = torch.ones(1)
        optimizer.step()

    assert weight.item() == -1.0
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("kind", "rate", "factor"),
    [("SGD", "linear", 1.5), ("SGD", "auto", 1.5), ("Adam", "auto", 1.5**0.5), ("SGD", "none", 1.0)],
)
def test_a_size_of_its_own_and_the_rate_that_goes_with_it(kind: str, rate: str, factor: float) -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = getattr(torch.optim, kind)([weight], lr=0.5)
    during: list[float] = []
    optimizer.register_step_pre_hook(lambda *_: during.append(optimizer.param_groups[0]["lr"]))

    with applied("batch.size", {"times": 2, "rate": rate, "size": 24}) as site:
        loader = DataLoader(DATA, 16, True)
        weight.grad = torch.ones(1)
        optimizer.step()

    assert loader.batch_size == 24 and during == [pytest.approx(0.5 * factor)]
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert "batch_size 16 → 24" in live_in_english(site).values()


def test_the_size_it_has_already_changes_nothing() -> None:
    with applied("batch.size", {"times": 2, "rate": "auto", "size": 16}) as site:
        loader = DataLoader(DATA, 16, True)

    assert loader.batch_size == 16 and live_in_english(site) == {}
