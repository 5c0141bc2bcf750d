"""A batch in parts: what a script does between the two passes, and what comes in later calls."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.remedies.applied import applied, reason
from tests.unit.remedies.test_batch_accumulate import FOUR, Net
from tests.unit.remedies.training import steps_told_to


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
