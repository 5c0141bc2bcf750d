"""An optimizer's fused form where the script did not choose one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.catalogue import known
from flatout.words import english
from tests.cases.evidence import run
from tests.unit.remedies.applied import applied, live_in_english, site_for
from tests.unit.remedies.training import Net, steps_told_to, train


def _net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_fused_and_back(kind: Any) -> None:
    plain_model = _net()
    plain = train(site_for("optimizer.fused", True), plain_model, 12, kind(plain_model.parameters(), 0.01))
    model = _net()
    optimizer = kind(model.parameters(), 0.01)

    with applied("optimizer.fused") as site:
        losses = train(site, model, 8, optimizer)
        assert optimizer.param_groups[0]["fused"] is True
        assert live_in_english(site) == {"optimizers": [f"{kind.__name__}: fused"]}
    assert optimizer.param_groups[0]["fused"] is None
    losses += train(site, model, 4, optimizer)

    assert losses[:8] == pytest.approx(plain[:8], rel=1e-4)


def test_lists_of_tensors_where_there_is_no_fused_kernel() -> None:
    model = _net()
    optimizer = torch.optim.RMSprop(model.parameters(), 0.01)

    with applied("optimizer.fused") as site:
        losses = train(site, model, optimizer=optimizer)
        assert optimizer.param_groups[0]["foreach"] is True
    assert optimizer.param_groups[0]["foreach"] is None

    again = _net()
    plain = train(site_for("optimizer.fused", True), again, optimizer=torch.optim.RMSprop(again.parameters(), 0.01))
    assert losses == pytest.approx(plain, rel=1e-4)


class _Own(torch.optim.SGD):
    pass


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: torch.optim.Adam(p, foreach=False), "the script sets foreach itself"),
        (lambda p: torch.optim.SGD(p, 0.1, fused=False), "the script sets fused itself"),
        (lambda p: torch.optim.Adam(p, differentiable=True), "the script sets differentiable"),
        (lambda p: _Own(p, 0.1), "its class is not torch's own"),
    ],
    ids=["foreach", "fused", "differentiable", "own class"],
)
def test_left_alone(make: Any, why: str) -> None:
    # Not leaves that want gradients: a differentiable step would have to change them in place.
    parameters = [one.detach() for one in _net().parameters()]
    optimizer = make(parameters)
    before = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}

    with applied("optimizer.fused") as site:
        for one in parameters:
            one.grad = torch.ones_like(one)
        optimizer.step()

        assert live_in_english(site) == {"optimizers": [f"{type(optimizer).__name__}: left alone, {why}"]}
    assert {name: value for name, value in optimizer.param_groups[0].items() if name != "params"} == before


def test_sparse_gradients_are_left_alone() -> None:
    table = nn.Embedding(16, 1, sparse=True)
    model: Any = type(
        "Table", (), {"__call__": lambda self, x: table(x[:, 0].long().clamp(0, 15)), "parameters": table.parameters}
    )()
    optimizer = torch.optim.SGD(table.parameters(), 0.1)

    with applied("optimizer.fused") as site:
        train(site, model, 3, optimizer)

        assert live_in_english(site) == {"optimizers": ["SGD: left alone, its gradients are sparse"]}


def test_a_loaded_state_keeps_the_form() -> None:
    before = _net()
    old = torch.optim.Adam(before.parameters(), 0.01)
    train(site_for("optimizer.fused", True), before, 3, old)
    model = _net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    with applied("optimizer.fused") as site:
        train(site, model, 2, optimizer)
        optimizer.load_state_dict(old.state_dict())
        assert optimizer.param_groups[0]["fused"] is None
        train(site, model, 2, optimizer)

        assert optimizer.param_groups[0]["fused"] is True
    count: Tensor = optimizer.state[model.head.weight]["step"]
    assert count == 5


def test_sparse_gradients_that_come_later_end_it_for_that_optimizer() -> None:
    def trained(site: Any) -> tuple[Any, list[Tensor]]:
        torch.manual_seed(0)
        table, head = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
        with steps_told_to(site):
            for step in range(6):
                inner = table(torch.tensor([1, 2, 3])) if step >= 3 else torch.ones(3, 4)
                optimizer.zero_grad()
                head(inner).mean().backward()
                optimizer.step()
        return optimizer, [*table.parameters(), *head.parameters()]

    _, plain = trained(site_for("optimizer.fused", True))
    with applied("optimizer.fused") as site:
        optimizer, weights = trained(site)

        assert live_in_english(site) == {"optimizers": ["SGD: fused", "SGD: left alone, its gradients are sparse"]}
    assert optimizer.param_groups[0]["fused"] is None
    torch.testing.assert_close(weights, plain)


def test_parameters_that_no_fused_kernel_takes_may_be_added() -> None:
    model, added = _net(), nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    with applied("optimizer.fused") as site:
        train(site, model, 2, optimizer)
        optimizer.add_param_group({"params": [added]})
        train(site, model, 3, optimizer, loss_of=lambda out, y: (out - y).square().mean() + added.abs().sum())

        assert "parameters came" in str(live_in_english(site))
    assert (added.detach() != 1).all()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_a_saved_state_is_the_scripts_own(kind: Any) -> None:
    model = _net()
    optimizer = kind(model.parameters(), 0.01)
    form = "fused" if kind is torch.optim.Adam else "foreach"

    with applied("optimizer.fused") as site:
        train(site, model, 2, optimizer)
        saved = optimizer.state_dict()

        assert optimizer.param_groups[0][form] is True
    assert saved["param_groups"][0][form] is None


_ADAM = {"class": "torch.optim.adamw.AdamW", "fused": None, "foreach": None}


@pytest.mark.parametrize(
    ("optimizer_ms", "described", "device", "is_yes"),
    [
        (6.0, _ADAM, "GPU", True),
        (1.0, _ADAM, "GPU", False),
        (6.0, _ADAM, "cpu", False),
        (6.0, {**_ADAM, "class": "lion.Lion"}, "GPU", False),
        (6.0, {**_ADAM, "foreach": True}, "GPU", False),
    ],
    ids=["worth it", "too little", "on a CPU", "not torch's", "the script chooses"],
)
def test_a_step_that_takes_a_part_of_the_time_is_worth_a_try(
    optimizer_ms: float, described: dict[str, object], device: str, is_yes: bool
) -> None:
    report = run(ms={"forward": 30.0, "backward": 64.0, "optimizer": optimizer_ms}).report
    report = replace(report, run=replace(report.run, device=device), live={"optimizers": [described]})

    answer = known()["optimizer.fused"].applies(report)

    assert answer.is_yes == is_yes
    assert answer.is_yes == ("6% of the training's time" in english(answer.why))
