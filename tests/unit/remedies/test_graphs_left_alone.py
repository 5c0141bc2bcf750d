"""Calls that cannot be replayed, or no longer: the training goes on unharmed, and the reason is told."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.compute.graphed_model import GraphedCall
from flatout.remedies.model.module_calls import replace_call
from tests.unit.remedies.applied import reason, site_for
from tests.unit.remedies.graph_tapes import CpuTapes
from tests.unit.remedies.graphed_training import Net, both

ARGUMENTS = SimpleNamespace(shift=0.0)


class Reads(Net):
    """Depends on more than its arguments and weights."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        ARGUMENTS.shift, Reads.factor = 0.0, 1.0

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.factor + ARGUMENTS.shift


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda model: model.body[0].requires_grad_(False), "frozen"),
        (lambda model: setattr(model, "head", nn.Linear(16, 2)), "head was replaced"),
        (lambda model: setattr(model.head, "weight", nn.Parameter(torch.ones(2, 16))), "weight was replaced"),
        (lambda model: setattr(model.head.weight, "data", torch.ones(2, 16)), "moved to other memory"),
        (lambda model: setattr(model, "scale", 0.5), "scale changed from 1.0 to 0.5"),
        (lambda model: setattr(ARGUMENTS, "shift", 0.5), "ARGUMENTS.shift changed from"),
        (lambda model: setattr(Reads, "factor", 0.5), "Reads.factor changed from"),
        (lambda model: setattr(model.body[3], "p", 0.1), "p changed from 0.5 to 0.1"),
        (lambda model: model.body[1].eval(), "training changed"),
        (lambda model: model.head.register_forward_hook(lambda *_: None), "hooks"),
    ],
)
def test_what_changes_later_ends_it(change: Callable[[Any], object], why: str) -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        losses = []
        for number, x in enumerate(batches):
            if number == 10:
                torch.manual_seed(7)
                change(model)
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        return losses

    site, _, _ = both(train, Reads)

    assert site.state == "reverted" and why in reason(site)


class Waits(Net):
    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        return out if out.sum().item() > -1e9 else -out


class DrawsOnHost(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) if random.random() < 0.5 else super().forward(-x)


class Keeps(Net):
    def forward(self, x: Tensor) -> Any:
        self.inner = self.body(x)
        return self.head(self.inner)


class Appends(Net):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Any:
        self.seen.append(x)
        return super().forward(x)


OUTSIDE = nn.Parameter(torch.ones(2))


class UsesOther(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * [OUTSIDE][0]


class Stamps(Net):
    def forward(self, x: Tensor) -> Any:
        return {"out": super().forward(x), "at": time.perf_counter()}


class InPlace(Net):
    def forward(self, x: Tensor) -> Any:
        x += 1
        return super().forward(x)


class Odd(Net):
    def forward(self, x: Tensor) -> Any:
        return type("Result", (), {"out": super().forward(x)})()


@pytest.mark.parametrize(
    ("kind", "state", "why"),
    [
        (Waits, "reverted", "not permitted when stream is capturing"),
        (DrawsOnHost, "refused", "random numbers on the host"),
        (Keeps, "refused", "leaves something behind"),
        (Appends, "refused", "leaves something behind"),
        (UsesOther, "refused", "not among its parameters"),
        (InPlace, "refused", "changes its arguments in place"),
        (Odd, "refused", "a Result"),
        (Stamps, "refused", "beside its tensors changes from call to call"),
    ],
)
def test_what_cannot_be_replayed_is_left_unharmed(kind: type[Net], state: str, why: str) -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            out = model(x)
            out = out["out"] if isinstance(out, dict) else getattr(out, "out", out)
            loss = out.square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    site, _, model = both(train, kind, replays=False)

    assert (site.state, why in reason(site)) == (state, True), reason(site)
    assert "_compiled_call_impl" not in vars(model)


BRANCH = {"sign": [1.0]}


class Branches(Net):
    """Reads something that no look at it can find."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * _sign(BRANCH)


def _sign(values: Any) -> Any:
    return values["sign"][0]


def test_a_branch_that_goes_another_way_is_seen_at_the_next_comparison() -> None:
    torch.manual_seed(0)
    model, site = Branches(), site_for("graphs.model", True)
    call = GraphedCall(site, model, CpuTapes())
    replace_call(site, model, call)
    BRANCH["sign"] = [1.0]

    for number in range(30):
        if number == 15:
            BRANCH["sign"][0] = -1.0
        model(torch.randn(16, 8)).square().mean().backward()

    assert site.state == "reverted" and "a replay differs from the call itself" in reason(site)


def test_too_little_memory_is_told() -> None:
    model, site = Net(), site_for("graphs.model", True)
    tapes = CpuTapes(room_bytes=0)
    tapes.held_bytes = iter([0, 1 << 30] * 9).__next__  # type: ignore[method-assign]
    replace_call(site, model, GraphedCall(site, model, tapes))

    for _ in range(6):
        model(torch.randn(16, 8)).sum().backward()

    assert site.state == "refused" and "1024 MiB" in reason(site)
