"""What is checkpointed is run once and kept: the same bits, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from torch import Tensor, nn

from flatout.remedies.memory import kept_activations as keeping
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, live_in_english, reason
from tests.unit.remedies.training import steps_told_to

_STEPS, _BLOCKS = 8, 16
Way = Callable[[nn.Module, Tensor], Any]


class Block(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.dropped = nn.Dropout(0.3)
        self.runs = 0

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        self.runs += 1
        return x + scale * self.dropped(torch.relu(self.norm(self.inner(x))))


class Trained:
    """Losses, weights, buffers and the next random number; and how often blocks were run."""

    def __init__(self, way: Way, norm: bool = False, rows: Callable[[int], int] = lambda step: 16) -> None:
        torch.manual_seed(0)
        blocks = [Block(norm) for _ in range(_BLOCKS)]
        model = nn.Sequential(nn.Linear(8, 8), *blocks)
        optimizer = torch.optim.SGD(model.parameters(), 1e-4)
        self.losses = []
        for step in range(_STEPS):
            x = model[0](torch.randn(rows(step), 8))
            for block in blocks:
                x = way(block, x)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            self.losses.append(loss.item())
        self.state = [one.double().sum().item() for one in model.state_dict().values()]
        self.random = torch.rand(()).item()
        self.runs = sum(block.runs for block in blocks)

    def is_like(self, other: Trained) -> bool:
        return (self.losses, self.state, self.random) == (other.losses, other.state, other.random)


def _checkpointed(block: nn.Module, x: Tensor, **options: Any) -> Any:
    return torch_checkpoint.checkpoint(block, x, **{"use_reentrant": False, **options})


def _in_closure(block: nn.Module, x: Tensor) -> Any:
    def run(value: Tensor, scale: float) -> Any:
        return block(value, scale=scale)

    return torch_checkpoint.checkpoint(run, x, use_reentrant=False, scale=0.5)


def _in_bf16(block: nn.Module, x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return _checkpointed(block, x)


_GLOBAL: list[nn.Module] = []


def _by_name(x: Tensor) -> Any:
    return _GLOBAL[-1](x)


def _unseen(block: nn.Module, x: Tensor) -> Any:
    """The part finds its module among the globals, where nobody looks."""
    _GLOBAL[:] = [block]
    return torch_checkpoint.checkpoint(_by_name, x, use_reentrant=False)


def _cut_off(block: nn.Module, x: Tensor) -> Any:
    """What reentrant checkpointing is given has no gradient, so its parts get none."""
    return torch_checkpoint.checkpoint(block, x.detach(), use_reentrant=True) + x


def _kept(way: Way, **more: Any) -> tuple[Trained, Trained, Site]:
    plain = Trained(way, **more)
    with applied("memory.keep") as site, steps_told_to(site):
        ours = Trained(way, **more)
        state, why = site.state, site.why
    site.state, site.why = state, why
    return plain, ours, site


@pytest.mark.parametrize(
    "way",
    [
        _checkpointed,
        partial(_checkpointed, use_reentrant=True),
        partial(_checkpointed, preserve_rng_state=True, determinism_check="none"),
        _in_closure,
        _in_bf16,
    ],
    ids=["plain", "reentrant", "options", "closure", "autocast"],
)
def test_the_training_is_the_same_to_the_last_bit(way: Way) -> None:
    plain, ours, site = _kept(way)

    assert site.state == "applied", reason(site)
    assert ours.is_like(plain)
    assert plain.runs == 2 * _STEPS * _BLOCKS
    # Two steps are looked on; in the third two of sixteen are kept and counted.
    assert ours.runs == 2 * 2 * _BLOCKS + (2 * _BLOCKS - 2) + (_STEPS - 3) * _BLOCKS
    assert str(live_in_english(site)["kept"]).startswith(f"{_BLOCKS} of {_BLOCKS} calls a step")


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 16 * 8 * 4  # bytes of one result
    monkeypatch.setattr(keeping, "room_bytes", lambda torch, device: 16 * each)

    plain, ours, site = _kept(_checkpointed)

    assert ours.is_like(plain) and site.state == "applied"
    assert 4 * (_STEPS - 3) < plain.runs - ours.runs < _BLOCKS * (_STEPS - 3)


@pytest.mark.parametrize(
    ("way", "more", "why"),
    [
        (_checkpointed, {"norm": True}, "changes a buffer"),
        (_cut_off, {}, "no part could be kept"),
        (partial(_checkpointed, context_fn=lambda: (nullcontext(), nullcontext())), {}, "no part could be"),
        (lambda block, x: block(x), {}, "was not called"),
    ],
    ids=["batch norm", "no gradient", "own rules", "none"],
)
def test_what_would_be_another_training_is_left(way: Way, more: dict[str, Any], why: str) -> None:
    plain, ours, site = _kept(way, **more)

    assert (site.state, why in reason(site)) == ("refused", True), reason(site)
    assert ours.is_like(plain) and ours.runs == plain.runs


def test_a_part_whose_modules_cannot_be_seen_is_left() -> None:
    with applied("memory.keep") as site:
        _unseen(Block(), torch.ones(1, 8, requires_grad=True)).sum().backward()

        assert site.state == "refused" and "cannot be seen" in reason(site)


def test_too_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "room_bytes", lambda torch, device: 10.0)

    plain, ours, site = _kept(_checkpointed)

    assert ours.is_like(plain) and site.state == "refused" and "GiB" in reason(site)


def test_it_stops_when_memory_becomes_short(monkeypatch: pytest.MonkeyPatch) -> None:
    room = iter([1e9, -1.0])
    monkeypatch.setattr(keeping, "room_bytes", lambda torch, device: next(room))
    monkeypatch.setattr(keeping, "_CHECK_EVERY", 5)

    plain, ours, site = _kept(_checkpointed)

    assert ours.is_like(plain) and site.state == "reverted" and reason(site) == "memory became short"


def test_without_a_graph_nothing_is_counted() -> None:
    with applied("memory.keep") as site, torch.no_grad():
        _checkpointed(Block(), torch.ones(2, 8))

        assert site.in_force
