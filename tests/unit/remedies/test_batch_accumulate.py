"""A batch in parts: the same losses, weights and steps as in one, whatever the loss averages over."""

from __future__ import annotations

import gc
import random
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from flatout.remedies.catalogue import known
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason
from tests.unit.remedies.training import steps_told_to

FOUR = {"parts": 4, "batchnorm": "refuse"}


SIZES: deque[int] = deque()


class Net(nn.Module):
    """Tells how many samples it is given with gradients at once."""

    def __init__(self, *more: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), *more, nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Any:
        if torch.is_grad_enabled():
            SIZES.append(len(x))
        return self.body(x)


class _Counts:
    """Calls that the optimizer and the scheduler really got."""

    def __init__(self) -> None:
        self.steps = self.schedules = 0


def _mean(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out, y)


def _token_mean(out: Tensor, y: Tensor) -> Tensor:
    """Over those that count only, which are not as many in every part."""
    return nn.functional.cross_entropy(out, torch.where(y > 2, y, -100), ignore_index=-100)


def _contrast(out: Tensor, y: Tensor) -> Tensor:
    """Every sample against all others."""
    return nn.functional.cross_entropy(out @ out.t(), torch.arange(len(out)))


def _train(
    site: Site | None, make: Callable[[], nn.Module] = Net, loss_of: Callable[..., Tensor] = _mean, size: int = 32
) -> tuple[list[float], list[Tensor], _Counts]:
    torch.manual_seed(0)
    model, counts = make(), _Counts()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=100)
    # The last batch is smaller: 150 = 4 · 32 + 22.
    data = TensorDataset(torch.randn(150, 6), torch.randint(0, 5, (150,)))
    losses = []
    for _ in range(2):
        for x, y in DataLoader(data, size, shuffle=True):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            counts.steps += 1
            schedule.step()
            losses.append(loss.item())
    counts.schedules = schedule.last_epoch
    return losses, [one.detach().clone() for one in model.parameters()], counts


@pytest.mark.parametrize("loss_of", [_mean, _token_mean, _contrast])
def test_parts_train_as_the_whole_does(loss_of: Callable[..., Tensor]) -> None:
    losses, weights, counts = _train(None, loss_of=loss_of)
    SIZES.clear()

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours, our_weights, our_counts = _train(site, loss_of=loss_of)

    assert site.live == {"modules": "Net", "batches": "8 + 8 + 8 + 8"}
    assert max(SIZES) == 8
    assert ours == pytest.approx(losses, rel=1e-4)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(our_weights, weights, strict=True))
    assert (our_counts.steps, our_counts.schedules) == (counts.steps, counts.schedules) == (10, 10)


def test_a_gradient_scaler_of_the_script_goes_on() -> None:
    def run(remedied: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = Net()
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.05), torch.amp.GradScaler("cpu")
        for _ in range(4):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        return [one.detach().clone() for one in model.parameters()]

    plain = run(remedied=False)
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run(remedied=True)

        assert site.in_force
    assert all(torch.allclose(one, other, atol=1e-2) for one, other in zip(ours, plain, strict=True))


def test_both_passes_of_a_part_draw_the_same_numbers() -> None:
    """The gradient of a dropout is its mask: it must be the one of the forward pass."""
    weight = torch.ones(16, 4, requires_grad=True)
    last = nn.Linear(4, 4, bias=False)
    nn.init.eye_(last.weight)
    model = nn.Sequential(nn.Dropout(0.5), last)

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        out = model(weight)
        after = torch.get_rng_state()
        out.sum().backward()

        assert site.in_force and site.live["batches"] == "4 + 4 + 4 + 4"
    assert weight.grad is not None and torch.equal(weight.grad, out.detach())
    assert torch.equal(torch.get_rng_state(), after)


def test_batch_statistics_are_refused_unless_allowed() -> None:
    make: Callable[[], nn.Module] = lambda: Net(nn.BatchNorm1d(16))  # noqa: E731
    losses, _, _ = _train(None, make)

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours, _, _ = _train(site, make)

        assert site.state == "refused" and "batchnorm=allow" in reason(site)
    with applied("batch.accumulate", {"parts": 2, "batchnorm": "allow"}) as site, steps_told_to(site):
        allowed, _, _ = _train(site, make)

        assert site.in_force
    assert ours == losses != allowed
    assert allowed == pytest.approx(losses, rel=0.3)


def test_running_statistics_have_each_part_once() -> None:
    model = Net(nn.BatchNorm1d(16))

    with applied("batch.accumulate", {"parts": 4, "batchnorm": "allow"}) as site, steps_told_to(site):
        model(torch.randn(16, 6)).sum().backward()

    assert int(model.get_buffer("body.3.num_batches_tracked")) == 4


class Mixes(Net):
    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        return out - out.mean(0)


class ReturnsLoss(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).square().mean()


class KeepsLoss(Net):
    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        self.extra = out.square().mean()
        return out


class DrawsOnHost(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * (random.random() + np.random.random())


class InPlace(Net):
    def forward(self, x: Tensor) -> Any:
        x += 1
        return super().forward(x)


class Counts(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), len(x)


def _hooked() -> nn.Module:
    model = Net()
    model.body.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Mixes, "depends on the others in the batch"),
        (ReturnsLoss, "a value for the whole batch"),
        (KeepsLoss, "leaves something behind"),
        (DrawsOnHost, "random numbers on the host"),
        (Counts, "such as a count"),
        (InPlace, "changes its arguments in place"),
        (_hooked, "a hook on Sequential"),
        (lambda: nn.DataParallel(Net()), "DataParallel exchanges gradients"),
    ],
)
def test_what_parts_would_make_wrong_is_refused_and_trains_as_ever(make: Callable[[], nn.Module], why: str) -> None:
    def run() -> list[float]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model, losses = make(), []
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(3):
            optimizer.zero_grad()
            out = model(torch.randn(16, 6))
            loss = (out[0] if isinstance(out, tuple) else out).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = run()
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run()

        assert site.state == "refused" and why in reason(site)
    assert ours == plain


def test_evaluation_gradients_of_gradients_and_small_batches() -> None:
    def run() -> list[float]:
        torch.manual_seed(0)
        model, found = Net(), []
        for size in (16, 3, 1, 16):
            x = torch.randn(size, 6, requires_grad=True)
            loss = model(x).square().mean()
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()
            found.append(sum(float(one.grad.sum()) for one in model.parameters() if one.grad is not None))
            model.eval()
            found.append(model(x).sum().item())
            model.train()
        return found

    plain = run()
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run()

        assert site.in_force
    assert ours == pytest.approx(plain, rel=1e-4)


def test_several_results_of_which_some_have_no_gradient() -> None:
    class Two(Net):
        def forward(self, x: Tensor) -> Any:
            out = super().forward(x)
            return {"logits": out, "best": out.argmax(1), "fixed": out.detach(), "name": "two"}

    torch.manual_seed(0)
    model, x = Two(), torch.randn(16, 6)
    whole = model(x)

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        parts = model(x)

        assert site.in_force, reason(site)
    assert parts.keys() == whole.keys() and parts["name"] == "two"
    assert torch.allclose(parts["logits"], whole["logits"], atol=1e-6) and torch.equal(parts["best"], whole["best"])
    assert [parts[name].requires_grad for name in ("logits", "best", "fixed")] == [True, False, False]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4", {"parts": 4, "batchnorm": "refuse"}),
        ("parts=3,batchnorm=allow", {"parts": 3, "batchnorm": "allow"}),
        (True, {"parts": 2, "batchnorm": "refuse"}),
    ],
)
def test_what_may_be_written(written: object, value: dict[str, Any]) -> None:
    assert known()["batch.accumulate"].value.read(written) == value


def test_layers_that_are_called_one_by_one_have_no_model_around_them() -> None:
    layers = [nn.Linear(6, 6) for _ in range(10)]
    x = torch.randn(8, 6)
    plain = x
    for layer in layers:
        plain = layer(plain)

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        for layer in layers:
            x = layer(x)

        assert site.state == "refused" and "one by one" in reason(site)
    assert torch.allclose(x, plain, atol=1e-6)
    assert not any("_compiled_call_impl" in vars(layer) for layer in layers)


def test_it_leaves_nothing_behind() -> None:
    original = nn.Module.__call__
    model = Net()

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        assert nn.Module.__call__ is not original
        loss = model(torch.randn(16, 6)).sum()
        loss.backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        assert nn.Module.__call__ is original and "_compiled_call_impl" in vars(model)

    assert "_compiled_call_impl" not in vars(model)


# A batch in parts: what a script does between the two passes, and what comes in later calls.


def test_a_table_of_as_many_rows_as_a_later_batch_is_not_split() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(6, 5)

        def forward(self, x: Tensor, table: Tensor) -> Any:
            return self.body(x) @ table.t() @ table

    def run() -> list[float]:
        torch.manual_seed(0)
        model, table, losses = Looks(), torch.randn(8, 5), []
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for size in (16, 16, 8, 16):
            optimizer.zero_grad()
            loss = model(torch.randn(size, 6), table).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = run()
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run()

        assert site.in_force, reason(site)
    assert ours == pytest.approx(plain, rel=1e-4)


def test_evaluation_may_begin_before_the_backward_pass() -> None:
    class Flips(Net):
        """What it computes in evaluation is another thing."""

        def forward(self, x: Tensor) -> Any:
            return super().forward(x) * (1.0 if self.training else 3.0)

    def run() -> list[float]:
        torch.manual_seed(0)
        model, sums = Flips(), []
        for _ in range(3):
            model.train()
            loss = model(torch.randn(16, 6)).square().mean()
            model.eval()
            loss.backward()
            sums += [float(one.grad.sum()) for one in model.parameters() if one.grad is not None]
        return sums

    plain = run()
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run()

        assert site.in_force, reason(site)
    assert ours == pytest.approx(plain, rel=1e-4, abs=1e-6)


def test_a_batch_that_is_written_into_before_the_backward_pass_is_refused_in_time() -> None:
    class Scales(Net):
        """Holds nothing of its argument itself."""

        def forward(self, x: Tensor) -> Any:
            return super().forward(2 * x)

    def run() -> list[float]:
        torch.manual_seed(0)
        model, losses, buffer = Scales(), [], torch.zeros(16, 6)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(4):
            optimizer.zero_grad()
            buffer.copy_(torch.randn(16, 6))
            loss = model(buffer).square().mean()
            buffer.zero_()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = run()
    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        ours = run()

        assert site.state == "refused" and "its arguments are changed in place" in reason(site)
    assert ours == pytest.approx(plain, rel=1e-4)


def test_a_loss_that_is_kept_keeps_no_batch() -> None:
    model, kept, batches = Net(), [], []

    with applied("batch.accumulate", FOUR) as site, steps_told_to(site):
        for _ in range(4):
            x = torch.randn(16, 6)
            loss = model(x).square().mean()
            loss.backward()
            kept.append(loss)
            batches.append(weakref.ref(x))
        del x
        gc.collect()

        assert site.in_force, reason(site)
        assert [batch() for batch in batches] == [None] * 4
