"""The same training without and with replayed calls, on tapes of the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.compute.graphed_model import GraphedCall
from flatout.remedies.model.module_calls import replace_call
from flatout.remedies.site import Site
from tests.unit.remedies.applied import reason, site_for
from tests.unit.remedies.graph_tapes import CpuTapes


class Net(nn.Module):
    """Has what a recording must treat with care: running statistics and dropout."""

    def __init__(self, drop: float = 0.5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(drop))
        self.head = nn.Linear(16, 2)
        self.scale = 1.0

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x)) * self.scale


Train = Callable[[Any, list[Tensor]], Any]


def both(
    train: Train, make: Callable[[], nn.Module] = Net, replays: bool = True, exact: bool = True
) -> tuple[Site, GraphedCall, Any]:
    """The same training without and with it; they must not differ in anything, or only in rounding."""
    outcomes = []
    site = call = None
    for graphed in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        model: Any = make()
        batches = [torch.randn(16, 8) for _ in range(14)]
        if graphed:
            site = site_for("graphs.model", True)
            call = GraphedCall(site, model, CpuTapes())
            replace_call(site, model, call)
        result = train(model, batches)
        outcomes.append((result, [one.detach().clone() for one in model.state_dict().values()], torch.get_rng_state()))
    assert site is not None and call is not None
    (plain, weights, state), (ours, our_weights, our_state) = outcomes
    assert ours == plain if exact else pytest.approx(ours, rel=1e-5) == plain
    compare = torch.equal if exact else torch.allclose
    assert all(compare(one, other) for one, other in zip(our_weights, weights, strict=True))
    assert torch.equal(our_state, state)
    assert (call.replays > 3) is replays, (site.state, reason(site), call.why_not)
    return site, call, model
