"""The collector between steps, and calls of it done seldom."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator

import pytest
import torch

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied


@pytest.fixture
def site() -> Iterator[Site]:
    assert gc.isenabled()
    with applied("gc.defer") as site:
        yield site
    assert gc.isenabled() and gc.get_freeze_count() == 0


class _Circle:
    def __init__(self) -> None:
        self.me = self


def _garbage() -> weakref.ref[_Circle]:
    return weakref.ref(_Circle())


def _steps(site: Site, first: int, last: int) -> None:
    for step in range(first, last + 1):
        site.stepped(step)


def test_after_the_first_steps_the_collector_runs_between_steps(site: Site) -> None:
    _steps(site, 1, 9)
    assert gc.isenabled()

    _steps(site, 10, 10)

    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert site.live["collector_off_from_step"] == 10


def test_garbage_goes_every_hundred_steps(site: Site) -> None:
    _steps(site, 1, 10)
    garbage = _garbage()

    _steps(site, 11, 109)
    assert garbage() is not None
    _steps(site, 110, 110)

    assert garbage() is None


def test_garbage_goes_when_there_is_much_of_it(site: Site) -> None:
    _steps(site, 1, 10)
    garbage = _garbage()
    many = [[] for _ in range(120_000)]  # type: ignore[var-annotated]

    _steps(site, 11, 11)

    assert len(many) == 120_000 and garbage() is None


def test_calls_of_the_script_are_done_seldom(site: Site) -> None:
    collected = []
    for step in range(1, 221):
        site.stepped(step)
        garbage = _garbage()
        gc.collect()
        if garbage() is None:
            collected.append(step)

    assert collected[:9] == list(range(1, 10))
    # The remedy's own round and the script's count as one.
    assert len([step for step in collected if step >= 10]) <= 2


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with applied("gc.defer") as site:
            _steps(site, 1, 120)
            assert gc.get_freeze_count() == 0
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_forked_worker_collects_as_ever(site: Site) -> None:
    _steps(site, 1, 10)

    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert not gc.isenabled()


# Anomaly mode stays off, by whatever it is switched on.


def test_it_cannot_be_switched_on() -> None:
    with applied("autograd.plain") as site:
        torch.autograd.set_detect_anomaly(True)
        assert not torch.is_anomaly_enabled()
        with torch.autograd.detect_anomaly():
            assert not torch.is_anomaly_enabled()
        with torch.autograd.set_detect_anomaly(True):
            assert not torch.is_anomaly_enabled()

    assert site.live == {"kept_off": True}
    assert not torch.is_anomaly_enabled()


def test_what_was_on_is_on_again_afterwards() -> None:
    plain = torch.set_anomaly_enabled
    torch.autograd.set_detect_anomaly(True)
    try:
        with applied("autograd.plain"):
            assert not torch.is_anomaly_enabled()

        assert torch.is_anomaly_enabled()
        assert torch.set_anomaly_enabled is plain
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_gradients_are_the_same() -> None:
    def gradient() -> torch.Tensor:
        weight = torch.linspace(-1, 1, 7, requires_grad=True)
        with torch.autograd.detect_anomaly(check_nan=False):
            (weight.tanh() ** 3).sum().backward()
        assert weight.grad is not None
        return weight.grad

    plain = gradient()

    with applied("autograd.plain"):
        ours = gradient()

    assert torch.equal(plain, ours)
