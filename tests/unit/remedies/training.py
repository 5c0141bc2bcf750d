"""A small training for the tests of numeric remedies, with the steps reported as in a real run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from flatout.remedies.site import Site


class Net(nn.Module):
    """Remembers in which type its inner result was."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        inner = self.body(x)
        self.seen.append(inner.dtype)
        out: Tensor = self.head(inner)
        return out


@contextmanager
def steps_told_to(site: Site) -> Iterator[None]:
    count = 0

    def stepped(*_: object) -> None:
        nonlocal count
        count += 1
        if site.in_force:
            site.stepped(count)

    # torch.optim hides the module of this name behind its own namespace.
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    handle = optimizers.register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        handle.remove()


def train(
    site: Site,
    model: Any,
    steps: int = 8,
    optimizer: torch.optim.Optimizer | None = None,
    loss_of: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss,
    between: Callable[[], object] = lambda: None,
    seed: int = 0,
) -> list[float]:
    """The losses of some steps on batches that depend on the seed alone."""
    random = torch.Generator().manual_seed(seed)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    with steps_told_to(site):
        for _ in range(steps):
            x = torch.randn(16, 8, generator=random)
            optimizer.zero_grad()
            loss = loss_of(model(x), x[:, :1] - x[:, 1:2])
            loss.backward()
            between()
            optimizer.step()
            losses.append(loss.item())
    return losses
