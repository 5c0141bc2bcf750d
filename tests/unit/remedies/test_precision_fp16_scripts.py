"""Scripts that do more than one plain step after the other, with scaled gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.training import Net, steps_told_to, train

_BEGUN = 4


def _net(kind: type[Net] = Net) -> Net:
    torch.manual_seed(0)
    return kind()


def test_a_second_model_is_trained_with_true_gradients_from_its_first_step_on() -> None:
    plain = train(site_for("precision.fp16", True), model := _net(), 8, torch.optim.SGD(model.parameters(), 0.05))

    with applied("precision.fp16") as site:
        train(site, _net(), 8)
        second = _net()
        losses = train(site, second, 8, torch.optim.SGD(second.parameters(), 0.05))

        assert site.in_force and second.seen[0] is torch.float16
    assert losses == pytest.approx(plain, rel=0.1, abs=0.02)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_script_that_leaves_out_steps_by_itself_goes_on(set_to_none: bool) -> None:
    model, left_out = _net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    with applied("precision.fp16") as site:
        train(site, model, _BEGUN, optimizer)
        with steps_told_to(site):
            for number in range(60):
                x = torch.randn(16, 8)
                optimizer.zero_grad(set_to_none=set_to_none)
                # So large that it overflows until the factor is a small one.
                (1e4 * nn.functional.mse_loss(model(x), x[:, :1])).backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                if not torch.isfinite(norm):
                    left_out.append(number)
                    continue
                optimizer.step()

    assert 0 < len(left_out) < 20


def test_an_optimizer_that_is_made_anew_leaves_out_overflowing_steps_too() -> None:
    model = _net()
    first = torch.optim.SGD(model.parameters(), 0.01)

    with applied("precision.fp16") as site:
        train(site, model, _BEGUN + 2, first)
        second = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            train(site, model, 2, second, loss_of=lambda out, y: 1e6 * nn.functional.mse_loss(out, y))

    assert all(one.isfinite().all() for one in model.parameters())


class _Clamped(Net):
    """Holds a gradient within bounds on its way back, as some recurrent models do."""

    def forward(self, x: Tensor) -> Tensor:
        inner = self.body(x)
        if inner.requires_grad:
            inner.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        out: Tensor = self.head(inner)
        return out


class _Retained(Net):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.body(x)
        if inner.requires_grad:
            inner.retain_grad()
        out: Tensor = self.head(inner)
        return out


@pytest.mark.parametrize("kind", [_Clamped, _Retained])
def test_hooks_on_results_are_refused(kind: type[Net]) -> None:
    plain = train(site_for("precision.fp16", True), _net(kind))

    with applied("precision.fp16") as site:
        losses = train(site, _net(kind))

        assert site.state == "refused" and "would see scaled gradients" in reason(site)
    assert losses == plain


def _on_parameter(model: Net) -> None:
    model.head.weight.register_hook(lambda gradient: gradient)


def _on_module(model: Net) -> None:
    model.head.register_full_backward_hook(lambda *_: None)


@pytest.mark.parametrize("hook", [_on_parameter, _on_module])
def test_a_hook_that_comes_later_gives_it_up(hook: Callable[[Any], None]) -> None:
    model = _net()

    with applied("precision.fp16") as site:
        train(site, model, _BEGUN + 1)
        in_force_before = site.in_force
        hook(model)

        assert in_force_before and not site.in_force and "would see scaled gradients" in reason(site)
