"""Weights of convolutions with the channels last, and what a script sees of it: nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.training import Net, steps_told_to, train


class Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return out


class Viewed(Picture):
    """Needs channels first within."""

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm(self.first(x)))
        return self.last(inner.view(len(x), -1).view_as(inner))


def _train(site: Site, model: nn.Module, steps: int = 10) -> list[float]:
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    with steps_told_to(site):
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(torch.randn(2, 3, 6, 6, generator=random))
            # As a script may do it: only possible with channels first.
            loss = out.view(2, -1).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    moments = optimizer.state[next(model.parameters())]["exp_avg"]
    assert moments.stride() == next(model.parameters()).stride()
    return losses


def _picture(kind: type[Picture] = Picture) -> Picture:
    torch.manual_seed(0)
    return kind()


def test_weights_lie_with_the_channels_last_until_it_is_undone() -> None:
    model = _picture()
    weight = model.first.weight

    with applied("layout.channels_last") as site:
        losses = _train(site, model)
        during = weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
        assert site.live == {"modules": ["Picture"], "weights": 2, "since_step": 4}

    assert during and model.first.weight is weight
    assert weight.is_contiguous()
    assert losses == pytest.approx(_train(site_for("layout.channels_last", True), _picture()), rel=1e-3)


def test_a_model_that_needs_channels_first_gets_them_back() -> None:
    model = _picture(Viewed)

    with applied("layout.channels_last") as site:
        losses = _train(site, model)

        assert site.state == "reverted" and "Viewed failed under it (RuntimeError: view size" in reason(site)
    assert model.first.weight.is_contiguous()
    plain = _picture(Viewed)
    assert losses == _train(site_for("layout.channels_last", True), plain)
    assert model.norm.num_batches_tracked == plain.norm.num_batches_tracked == 10


def test_the_scripts_choice_holds() -> None:
    model = _picture().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    with applied("layout.channels_last") as site, steps_told_to(site):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(6):
            model(torch.ones(2, 3, 6, 6)).sum().backward()
            optimizer.step()

        assert (site.state, reason(site)) == ("refused", "the script sets it itself")


def test_a_model_without_convolutions_is_refused() -> None:
    with applied("layout.channels_last") as site:
        train(site, Net(), 6)

        assert site.state == "refused" and "no two-dimensional convolutions" in reason(site)


def _flat_gradients(model: nn.Module) -> Tensor:
    return torch.cat([one.grad.view(-1) for one in model.parameters() if one.grad is not None])


def _flat_weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def _pruned(model: nn.Module) -> Tensor:
    for one in model.parameters():
        one.data.view(-1)[0] = 0.0
    return _flat_weights(model)


@pytest.mark.parametrize("look", [_flat_gradients, _flat_weights, _pruned])
def test_a_flat_view_of_weights_or_gradients_gives_it_up_and_works(look: Callable[[nn.Module], Tensor]) -> None:
    def looked(site: Site) -> tuple[str, Tensor, Tensor]:
        model = _picture()
        _train(site, model, 6)
        flat = look(model)
        return site.state, flat, model.first.weight.detach().contiguous()

    _, plain, plain_weight = looked(site_for("layout.channels_last", True))
    with applied("layout.channels_last") as site:
        state, flat, weight = looked(site)

    assert state == "reverted" and "takes a view" in reason(site)
    # Adam makes much of a bias whose gradient is nothing but rounding.
    torch.testing.assert_close(flat, plain, rtol=0.0, atol=0.01)
    torch.testing.assert_close(weight, plain_weight, rtol=0.0, atol=0.01)


def _parts_of_one_buffer(model: Picture) -> None:
    weight = model.first.weight
    weight.data = torch.cat([weight.data.reshape(-1), torch.zeros(5)])[: weight.numel()].view_as(weight)


def _one_memory_for_two(model: Picture) -> None:
    model.again = nn.Conv2d(3, 8, 3, padding=1)
    model.again.weight.data = model.first.weight.data


def _for_other_processes(model: Picture) -> None:
    model.share_memory()


@pytest.mark.parametrize("share", [_parts_of_one_buffer, _one_memory_for_two, _for_other_processes])
def test_weights_whose_memory_is_shared_stay_where_they_are(share: Callable[[Picture], None]) -> None:
    model = _picture()
    share(model)
    place = model.first.weight.data_ptr()

    with applied("layout.channels_last") as site:
        _train(site, model, 6)

        assert site.state == "refused" and "share their memory" in reason(site)
    assert model.first.weight.data_ptr() == place
