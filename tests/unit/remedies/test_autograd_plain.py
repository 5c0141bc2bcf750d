"""Anomaly mode stays off, by whatever it is switched on."""

from __future__ import annotations

import torch

from tests.unit.remedies.applied import applied


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
