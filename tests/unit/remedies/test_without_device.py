"""What is for a device, on a build that has CUDA and a machine that has none: it stands by, and changes nothing."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason

NAMES = ("transfer.async", "sync.skip", "sync.defer", "gc.defer")


def _trained(sites: list[Site]) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(120, 4)), batch_size=4)
    losses = []
    for step, (x,) in enumerate(loader, 1):
        loss = model(x.to("cpu", non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for site in sites:
            site.stepped(step)
        x.zero_()
        losses.append(torch.empty(()).copy_(loss.detach(), non_blocking=True).item())
    return losses


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_training_on_the_host_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _trained([])
    monkeypatch.setattr(torch.version, "cuda", torch.version.cuda or "12.0")

    with ExitStack() as stack:
        sites = [stack.enter_context(applied(name)) for name in NAMES]
        ours = _trained(sites)
        states = [(site.in_force, reason(site)) for site in sites]

    assert ours == plain
    assert states == [(True, "")] * len(NAMES)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_batch_of_a_loader_is_copied_as_the_script_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", torch.version.cuda or "12.0")
    from torch.utils.data._utils.pin_memory import pin_memory

    with applied("transfer.async") as site:
        from torch.utils.data._utils import pin_memory as module

        batch = module.pin_memory({"x": torch.ones(3)}) if torch.cuda.is_available() else {"x": torch.ones(3)}
        for step in range(1, 30):
            site.stepped(step)
        moved = batch["x"].to(torch.float64)
        torch.empty(3).copy_(batch["x"])

    assert moved.dtype is torch.float64
    assert module.pin_memory is pin_memory
