"""Blocks that are run again in backward: the same bits, and less held between the passes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from flatout.remedies.memory.checkpointing import repeated_blocks
from tests.unit.remedies.applied import applied, reason
from tests.unit.remedies.training import steps_told_to

RUNS = itertools.count()


class Block(nn.Module):
    """Has dropout and running statistics; tells how often it is run."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 8))

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        next(RUNS)
        return x + scale * self.layers(self.norm(x))


class Net(nn.Module):
    def __init__(self, kind: type[nn.Module] = Block) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(kind() for _ in range(4))
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for block in self.blocks:
            result = block(x, scale=0.5)
            x = result[0] if isinstance(result, tuple) else result
        return self.last(x)


def _trained(make: Callable[[], nn.Module] = Net, parts: int = 1) -> tuple[list[float], list[list[float]], bytes]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model, losses = make(), []
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for number in range(6):
        optimizer.zero_grad()
        for _ in range(parts):
            loss = model(torch.randn(16, 6)).square().mean()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number == 3:
            model.eval()
            losses.append(model(torch.ones(2, 6)).sum().item())
            model.train()
    state = [one.flatten().tolist() for one in model.state_dict().values()]
    return losses, state, bytes(torch.get_rng_state().tolist())


@pytest.mark.parametrize("parts", [1, 2])
def test_the_training_is_the_same_to_the_last_bit(parts: int) -> None:
    plain = _trained(parts=parts)
    before = next(RUNS)

    with applied("memory.checkpointing") as site, steps_told_to(site):
        ours = _trained(parts=parts)

        assert site.in_force, reason(site)
        assert site.live == {"blocks": 4, "kinds": "Block"}
    assert ours == plain
    # Twice each in training, once in evaluation, and once to try it out.
    assert next(RUNS) - before - 1 == 4 * (2 * 6 * parts + 1 + 1)


def test_under_autocast_too() -> None:
    class Cast(Net):
        def forward(self, x: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x)

    plain = _trained(Cast)

    with applied("memory.checkpointing") as site, steps_told_to(site):
        ours = _trained(Cast)

        assert site.in_force
    assert ours == plain


def test_less_is_held_between_the_passes() -> None:
    def held() -> int:
        model, seen = Net(), []
        model(torch.randn(16, 6))  # tried out

        def pack(one: Tensor) -> Tensor:
            seen.append(one.numel())
            return one

        with saved_tensors_hooks(pack, lambda one: one):
            model(torch.randn(16, 6))
        return sum(seen)

    plain = held()

    with applied("memory.checkpointing") as site, steps_told_to(site):
        ours = held()

    assert ours < plain / 3


class Caches(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return super().forward(x, scale), type("Cache", (), {})()


class Counts(Block):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        self.calls += 1
        return super().forward(x, scale) * self.calls


class Keeps(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        self.out = super().forward(x, scale)
        return self.out


class DropsLayers(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return x if random.random() < 0.3 else super().forward(x, scale)


seen = 0


class CountsGlobally(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        global seen
        seen += 1
        return super().forward(x, scale)


class InPlace(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        x += 1
        return super().forward(x, scale)


class Plain(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 8)

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return super().forward(x)


class Own(Net):
    reentrant = False

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


class OwnReentrant(Own):
    reentrant = True


def _hooked() -> nn.Module:
    model = Net()
    model.blocks[2].register_forward_hook(lambda *_: None)
    return model


class Late(nn.Module):
    """Holds nothing of its argument itself, so the model may write into it afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 8))

    def forward(self, x: Tensor, scale: float) -> Any:
        return torch.tanh(self.layers(x)) * scale


class AddsInPlace(Net):
    def __init__(self) -> None:
        super().__init__(Late)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x += block(x, scale=0.5)
        return self.last(x)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (AddsInPlace, "changes in place what it has given it"),
        (lambda: Net(Caches), "returns a Cache"),
        (lambda: Net(Counts), "changes its arguments or buffers in place"),
        (lambda: Net(Keeps), "leaves something behind"),
        (lambda: Net(DropsLayers), "random numbers on the host"),
        (lambda: Net(CountsGlobally), "leaves something behind: seen changed from"),
        (lambda: Net(InPlace), "changes its arguments or buffers in place"),
        (lambda: Net(Plain), "no repeated blocks"),
        (_hooked, "a hook on Block"),
        (Own, "is checkpointed by the script"),
        (OwnReentrant, "is checkpointed by the script"),
    ],
)
def test_what_cannot_be_run_twice_is_refused_and_trains_as_ever(make: Callable[[], nn.Module], why: str) -> None:
    plain = _trained(make)

    with applied("memory.checkpointing") as site, steps_told_to(site):
        ours = _trained(make)

        assert site.state == "refused" and why in reason(site), reason(site)
    assert ours == plain


def test_what_is_written_into_later_than_at_first_is_told() -> None:
    class Sometimes(AddsInPlace):
        calls = 0

        def forward(self, x: Tensor) -> Any:
            Sometimes.calls += 1
            return super().forward(x) if Sometimes.calls > 2 else Net.forward(self, x)

    with applied("memory.checkpointing") as site, steps_told_to(site):
        _trained(Sometimes)

        assert site.state == "reverted" and "this step's gradients may be wrong" in reason(site)


def test_evaluation_may_begin_before_the_backward_pass() -> None:
    def trained() -> list[float]:
        torch.manual_seed(0)
        model, sums = Net(), []
        for _ in range(4):
            model.train()
            loss = model(torch.randn(16, 6)).square().mean()
            model.eval()
            loss.backward()
            assert not any(part.training for part in model.modules())
            sums += [one.grad.sum().item() for one in model.parameters() if one.grad is not None]
        return sums

    plain = trained()

    with applied("memory.checkpointing") as site:
        ours = trained()

        assert site.in_force and site.live["blocks"] == 4
    assert ours == plain


def test_another_kind_of_call_goes_as_ever() -> None:
    class Scale(float):
        """No plain number: it may hold more."""

    with applied("memory.checkpointing") as site:
        model = Net()
        model(torch.randn(16, 6))
        before = next(RUNS)
        model.blocks[0](torch.randn(16, 8), scale=[Scale(1.0), object()][0]).sum().backward()

        assert next(RUNS) - before - 1 == 2
        model.blocks[0].forward = lambda x, scale: x
        assert model.blocks[0](torch.randn(16, 8), scale=object()).shape == (16, 8)
        assert site.in_force


def test_with_a_batch_in_parts_as_well() -> None:
    def make() -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)))

    losses, _, _ = _trained(make)

    with applied("memory.checkpointing") as site, applied("batch.accumulate", {"parts": 2, "batchnorm": "refuse"}):
        with steps_told_to(site):
            ours, _, _ = _trained(make)
        assert site.in_force, reason(site)

    assert ours == pytest.approx(losses, rel=1e-4)


def test_which_blocks_it_finds() -> None:
    def stage(blocks: int) -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(blocks)))

    deep = nn.Sequential(nn.Linear(4, 4), stage(3), stage(2), nn.Linear(4, 2))

    assert list(repeated_blocks(torch, deep)) == ["1", "2"]
    assert list(repeated_blocks(torch, nn.Sequential(nn.Linear(4, 4), stage(3)))) == ["1.0", "1.1", "1.2"]
    assert repeated_blocks(torch, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == {}
    assert list(repeated_blocks(torch, Net())) == [f"blocks.{number}" for number in range(4)]
