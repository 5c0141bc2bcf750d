"""Gradients are scaled while they are in fp16, and true again before anybody can look."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flatout.records.message import verbatim
from flatout.remedies.precision.fp16 import KEY
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.training import Net, steps_told_to, train

_BEGUN = 4


def _net(kind: type[Net] = Net) -> Net:
    torch.manual_seed(0)
    return kind()


def _tiny(out: Tensor, y: Tensor) -> Tensor:
    """Its gradients vanish in fp16 unless they are scaled."""
    return 1e-7 * nn.functional.mse_loss(out, y)


def _gradients(model: nn.Module) -> list[Tensor]:
    return [one.grad.clone() for one in model.parameters() if one.grad is not None]


def test_losses_go_the_same_way() -> None:
    plain = train(site_for("precision.fp16", True), _net(), 40)

    with applied("precision.fp16") as site:
        model = _net()
        rounded = train(site, model, 40)

        assert site.in_force and model.seen[-1] is torch.float16
    assert rounded != plain
    assert rounded == pytest.approx(plain, rel=0.1, abs=0.02)


def test_gradients_are_true_ones_after_backward() -> None:
    def run(site: Site) -> list[Tensor]:
        model = _net()
        train(site, model, _BEGUN + 1, torch.optim.SGD(model.parameters(), 0.0), loss_of=_tiny)
        return _gradients(model)

    plain = run(site_for("precision.fp16", True))
    with applied("precision.fp16") as site:
        scaled = run(site)

    for one, other in zip(scaled, plain, strict=True):
        assert (one - other).norm() < 0.2 * other.norm()


def test_clipping_sees_true_gradients() -> None:
    norms: list[float] = []
    model = _net()

    def clip() -> None:
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))

    with applied("precision.fp16") as site:
        train(site, model, 8, torch.optim.SGD(model.parameters(), 0.0), between=clip)

    assert max(norms[_BEGUN:]) < 3 * max(norms[:_BEGUN])


def test_gradients_add_up_over_passes() -> None:
    model = _net()
    x = torch.ones(4, 8)

    with applied("precision.fp16") as site:
        train(site, model, _BEGUN, torch.optim.SGD(model.parameters(), 0.0))
        model.zero_grad()
        model(x).sum().backward()
        once = _gradients(model)
        model(x).sum().backward()
        twice = _gradients(model)

    for one, two in zip(once, twice, strict=True):
        torch.testing.assert_close(two, 2 * one)


def _overflowing(model: Net, at: int) -> Callable[[Tensor, Tensor], Tensor]:
    def loss_of(out: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(out, y) * (1e6 if len(model.seen) == at + 1 else 1.0)

    return loss_of


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_overflows_changes_nothing_but_counts(fused: bool) -> None:
    model = _net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=fused)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    weights: list[Tensor] = []
    rates: list[float] = []

    def note() -> None:
        weights.append(model.head.weight.detach().clone())
        rates.append(float(optimizer.state_dict().get(KEY, {}).get("scale", 0.0)))

    with warnings.catch_warnings(), applied("precision.fp16") as site:
        warnings.simplefilter("error")
        train(site, model, 9, optimizer, _overflowing(model, 6), between=note)
        scheduler.step()

        assert site.in_force and site.step == 9
    changed = [not torch.equal(old, new) for old, new in pairwise(weights)]
    assert changed == [True] * 6 + [False, True]
    # The first steps were not scaled, the overflow halved the factor for the passes after it.
    assert rates[4:] == [4096.0, 4096.0, 4096.0, 2048.0, 2048.0]
    assert optimizer.state[model.head.weight]["step"] == 8


def test_the_factor_goes_with_the_optimizers_state() -> None:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with applied("precision.fp16") as site:
        train(site, model, 8, optimizer, _overflowing(model, 5))
        saved = optimizer.state_dict()
    assert saved[KEY] == {"scale": 2048.0, "good_steps": 2}

    again = _net()
    resumed = torch.optim.SGD(again.parameters(), 0.01)
    with applied("precision.fp16") as site:
        resumed.load_state_dict(saved)
        train(site, again, 5, resumed)
        assert resumed.state_dict()[KEY] == {"scale": 2048.0, "good_steps": 3}

    # And nobody else minds it.
    resumed.load_state_dict(saved)
    assert KEY not in resumed.state_dict()


def test_a_pass_within_a_pass_is_not_scaled_twice() -> None:
    class Checkpointed(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = x.requires_grad_()
            out: Tensor = self.head(checkpoint(self.body, x, use_reentrant=True))
            return out

    def run(site: Site) -> list[Tensor]:
        torch.manual_seed(0)
        model = Checkpointed()
        inputs = torch.ones(4, 8)
        optimizer = torch.optim.SGD([*model.parameters(), inputs.requires_grad_()], 0.0)
        with steps_told_to(site):
            for _ in range(6):
                optimizer.zero_grad()
                model(inputs).sum().backward()
                optimizer.step()
        return _gradients(model)

    plain = run(site_for("precision.fp16", True))
    with applied("precision.fp16") as site:
        scaled = run(site)
        assert site.in_force, reason(site)

    for one, other in zip(scaled, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_two_optimizers_in_turn() -> None:
    maker, judge = nn.Sequential(nn.Linear(4, 8)), Net()
    first, second = (torch.optim.SGD(one.parameters(), 0.01) for one in (maker, judge))
    norms: list[float] = []

    with applied("precision.fp16") as site, steps_told_to(site):
        for _ in range(8):
            for optimizer, kept in ((second, False), (first, True)):
                first.zero_grad()
                second.zero_grad()
                made = maker(torch.ones(2, 4))
                judge(made if kept else made.detach()).mean().backward()
                norms.append(float(nn.utils.clip_grad_norm_(judge.parameters(), 1e9)))
                optimizer.step()

        assert site.in_force, reason(site)
    assert max(norms) < 3 * min(norms)


def _with_hook() -> Net:
    model = _net()
    model.head.weight.register_hook(lambda grad: grad.clamp(-1, 1))
    return model


class _Sparse(Net):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 8, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.table(torch.zeros(len(x), dtype=torch.long)))


@pytest.mark.parametrize(
    ("make", "why"),
    [(_with_hook, "a hook on a parameter of Linear"), (_Sparse, "Embedding has sparse gradients")],
    ids=["hook", "sparse"],
)
def test_refused(make: Any, why: str) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    with applied("precision.fp16") as site:
        train(site, model, 6, optimizer)

        assert site.state == "refused" and why in reason(site), reason(site)


def test_a_closure_is_refused() -> None:
    model = _net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).pow(2).sum()
        loss.backward()
        return loss

    hooks = _hooks()

    # Others' hooks come after ours: torch goes over all of them while ours gives up.
    with steps_told_to(site_for("precision.fp16", True)), applied("precision.fp16") as site, steps_told_to(site):
        optimizer.step(closure)
        optimizer.step(closure)

        assert site.state == "refused" and "closure" in reason(site)
    assert _hooks() == hooks


def _hooks() -> tuple[int, int]:
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    return len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)


def test_given_up_in_the_middle_of_a_step() -> None:
    with applied("precision.fp16") as site:
        site.each_step(lambda step: site.give_up(verbatim("enough")) if step == 6 else None)

        losses = train(site, _net(), 8)

        assert (site.state, reason(site)) == ("reverted", "enough") and len(losses) == 8


def test_gradients_of_an_attacked_sample_give_it_up_before_they_are_scaled() -> None:
    model = _net()

    def attacked(site: Site) -> Tensor:
        train(site, model, _BEGUN, torch.optim.SGD(model.parameters(), 0.0))
        x = torch.ones(4, 8, requires_grad=True)
        model(x).sum().backward()
        assert x.grad is not None
        return x.grad

    plain = attacked(site_for("precision.fp16", True))
    with applied("precision.fp16") as site:
        seen = attacked(site)

        assert site.state == "reverted" and "belong to no optimizer" in reason(site)
    torch.testing.assert_close(seen, plain, rtol=0.02, atol=0.01)


def test_gradients_of_gradients_give_it_up() -> None:
    model = _net()

    with applied("precision.fp16") as site:
        train(site, model, _BEGUN)
        model(torch.ones(4, 8)).sum().backward(create_graph=True)

        assert site.state == "reverted" and "create_graph" in reason(site)
    model.zero_grad()


def test_too_many_overflows_give_it_up() -> None:
    model = _net()

    with applied("precision.fp16") as site:
        train(site, model, 120, loss_of=lambda out, y: (out * 1e4).pow(2).sum() * 1e8)

        assert site.state == "reverted" and ("steps overflowed" in reason(site) or "finite" in reason(site)), reason(
            site
        )


def test_reverted_in_the_middle_all_is_as_it_was() -> None:
    model = _net()
    backward, state_dict = torch.autograd.backward, torch.optim.Optimizer.state_dict

    with applied("precision.fp16") as site:
        train(site, model, 6)
        site.revert()
        train(site, model, 2)

    assert model.seen[-1] is torch.float32
    assert torch.autograd.backward is backward and torch.optim.Optimizer.state_dict is state_dict


# Scripts that do more than one plain step after the other, with scaled gradients.


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
