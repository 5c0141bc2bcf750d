"""The rasteriser of avatar_splat: gradients, batches of cameras, and a slow renderer to compare with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.workloads.projects import WORKLOADS

COUNT, SIDE = 24, 40


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKLOADS / "avatar_splat"))


def scene(cameras: int, dtype: torch.dtype = torch.float64) -> tuple[Any, Any, Any]:
    """A head in as many poses as cameras, Gaussians on it, and the cameras."""
    from splat.gaussians import initial
    from splat.make_data import looking_at_head
    from splat.mesh import head
    from splat.render import View
    from splat.viewer import orbit_position

    generator = torch.Generator().manual_seed(3)
    device = torch.device("cpu")
    mesh = head(0, device, dtype)
    model = initial(COUNT, len(mesh.faces), generator, device)
    for name, parameter in model.parameters.items():
        parameter.data = parameter.data.to(dtype)
        if name.startswith("sh"):
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator).to(dtype)
    facts = [looking_at_head(orbit_position(0.5 * i - 0.4, 4.0), SIDE, SIDE) for i in range(cameras)]

    def rows(name: str) -> Tensor:
        return torch.tensor([fact[name] for fact in facts], dtype=dtype)

    view = View(
        matrix=rows("matrix"),
        focal=rows("focal"),
        centre=rows("centre"),
        position=rows("position"),
        depth_range=torch.tensor([[0.05, 20.0]] * cameras, dtype=dtype),
        background=torch.tensor([[1.0, 0.5, 0.2]] * cameras, dtype=dtype),
    )
    expression = torch.rand(cameras, 8, generator=generator).to(dtype)
    rotation = 0.2 * torch.randn(cameras, 2, 3, generator=generator).to(dtype)
    frames = mesh.posed(expression, rotation, torch.zeros(cameras, 3, dtype=dtype))
    return model, frames, view


def one(batch: Any, i: int) -> Any:
    """The i-th camera of a record of tensors."""
    names = type(batch).__dataclass_fields__
    return type(batch)(**{name: getattr(batch, name)[i : i + 1] for name in names})


def test_the_blend_has_the_gradients_of_finite_differences() -> None:
    from splat.tiles import blend

    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    mean = (random(2, 5, 2) - 0.5) * 16
    conic = torch.stack([random(2, 5) * 0.1 + 0.02, random(2, 5) * 0.02, random(2, 5) * 0.1 + 0.02], dim=-1)
    inputs = [mean, conic, (random(2, 5) * 0.9).log(), random(2, 5, 4)]

    assert torch.autograd.gradcheck(blend, [each.requires_grad_() for each in inputs], fast_mode=True)


def test_an_opaque_gaussian_hides_what_is_behind_it_and_stops_its_own_gradient() -> None:
    from splat.tiles import OPAQUE, blend

    mean = torch.full((1, 2, 2), 0.5, dtype=torch.float64)
    conic = torch.tensor([1e-9, 0.0, 1e-9], dtype=torch.float64).expand(1, 2, 3)
    log_opacity = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    features = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)

    blended = blend(mean, conic, log_opacity, features)
    blended.sum().backward()

    assert torch.allclose(blended, torch.tensor(OPAQUE, dtype=torch.float64))
    assert log_opacity.grad is not None and torch.equal(log_opacity.grad, torch.zeros(1, 2, dtype=torch.float64))


def test_every_kind_of_parameter_has_the_gradient_of_finite_differences_through_the_whole_renderer() -> None:
    from splat.render import render

    model, frames, view = scene(cameras=2)
    target = torch.rand(2, 3, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss() -> Tensor:
        return (render(model.posed(frames), view, SIDE, SIDE, COUNT).image - target).square().mean()

    loss().backward()
    for name, parameter in model.parameters.items():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for i in gradient.abs().topk(3).indices.tolist():
            kept, step = flat[i].item(), 1e-6
            flat[i] = kept + step
            above = loss().item()
            flat[i] = kept - step
            below = loss().item()
            flat[i] = kept
            assert gradient[i].item() == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-10), name


def test_a_batch_of_cameras_equals_one_camera_after_another() -> None:
    from splat.render import render

    model, frames, view = scene(cameras=3)
    together = render(model.posed(frames), view, SIDE, SIDE, 16)
    together.image.square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.parameters.items()}
    for parameter in model.parameters.values():
        parameter.grad = None
    alone = [render(model.posed(one(frames, i)), one(view, i), SIDE, SIDE, 16) for i in range(3)]
    for rendered in alone:
        rendered.image.square().sum().backward()

    assert torch.allclose(together.image, torch.cat([each.image for each in alone]), atol=1e-12)
    assert torch.equal(together.radii, torch.cat([each.radii for each in alone]))
    looped = torch.cat([each.screen_gradient() for each in alone])
    assert torch.allclose(together.screen_gradient(), looped, atol=1e-9)
    for name, parameter in model.parameters.items():
        assert torch.allclose(gradients[name], parameter.grad, rtol=1e-9, atol=1e-9), name


def test_tiles_give_the_picture_of_a_renderer_without_tiles() -> None:
    from splat.render import _colours, _projected, render
    from splat.tiles import OPAQUE

    model, frames, view = scene(cameras=1)
    with torch.no_grad():
        posed = model.posed(frames)
        rendered = render(posed, view, SIDE, SIDE, COUNT)
        means, covariance, depth = _projected(posed, view)
        colours = _colours(posed, view)
    y, x = torch.meshgrid(*[torch.arange(SIDE, dtype=torch.float64) + 0.5] * 2, indexing="ij")
    passed, image = torch.ones(SIDE, SIDE, dtype=torch.float64), torch.zeros(3, SIDE, SIDE, dtype=torch.float64)
    for i in depth[0].argsort().tolist():
        xx, xy, yy = covariance[0, i]
        dx, dy = x - means[0, i, 0], y - means[0, i, 1]
        form = (yy * dx * dx - 2 * xy * dx * dy + xx * dy * dy) / (xx * yy - xy * xy)
        alpha = (torch.sigmoid(posed.opacity[i]).detach() * torch.exp(-form / 2)).clamp(max=OPAQUE)
        image += passed * alpha * colours[0, i].view(3, 1, 1)
        passed = passed * (1 - alpha)
    image += passed * view.background[0].view(3, 1, 1)

    # A tile does not see Gaussians more than three standard deviations away.
    assert (rendered.image[0] - image).abs().max() < 0.03
    assert (rendered.image[0] - image).abs().mean() < 1e-3


def test_a_tile_keeps_its_nearest_gaussians_front_to_back() -> None:
    from splat.tiles import nearest

    means = torch.tensor([[[8.0, 8.0], [9.0, 9.0], [30.0, 8.0], [7.0, 7.0]]])
    radii, depths = torch.tensor([[4.0, 4.0, 4.0, 0.0]]), torch.tensor([[3.0, 1.0, 2.0, 0.5]])

    ids, filled = nearest(means, radii, depths, columns=2, rows=1, count=2)

    assert filled.tolist() == [[[True, True], [True, False]]]
    assert ids[0, 0].tolist() == [1, 0]  # the fourth is nearest, but is not seen
    assert ids[0, 1, 0] == 2


def test_densification_clones_small_splits_large_prunes_faded_and_keeps_the_moments_of_the_rest() -> None:
    from splat.densify import ScreenStats, densify
    from splat.gaussians import FIELDS, initial

    device = torch.device("cpu")
    torch.manual_seed(0)
    model = initial(6, 20, torch.Generator().manual_seed(0), device)
    optimizer = torch.optim.Adam(model.groups(1.0), lr=0.0)
    sum(model[name].square().sum() for name in FIELDS).backward()  # type: ignore[union-attr]
    optimizer.step()
    with torch.no_grad():
        model["scaling"][:] = -3.0
        model["scaling"][1] = 0.0  # large
        model["opacity"][2] = -9.0  # faded
    stats = ScreenStats(6, device)
    stats.gradient[:2], stats.seen[:] = 5.0, 1.0
    before = {name: model[name].detach().clone() for name in FIELDS}
    moments = optimizer.state[model["xyz"]]["exp_avg"].clone()

    densify(model, optimizer, stats, threshold=1.0, limit=100)

    # 0 is cloned, 1 becomes two halves, 2 is gone, 3 to 5 stay.
    assert model.binding.tolist() == [0, 3, 4, 5, 0, 1, 1]
    assert torch.equal(model["xyz"][:5], before["xyz"][[0, 3, 4, 5, 0]])
    assert not torch.equal(model["xyz"][5], model["xyz"][6])
    assert torch.allclose(model["scaling"][5:].exp(), torch.full((2, 3), 1 / 1.6))
    state = optimizer.state[model["xyz"]]
    assert torch.equal(state["exp_avg"][:4], moments[[0, 3, 4, 5]])
    assert not state["exp_avg"][4:].any()
    assert len(optimizer.state) == len(FIELDS)
    assert stats.gradient.tolist() == [0.0] * 7
    optimizer.step()


def test_densification_stops_at_the_limit() -> None:
    from splat.densify import ScreenStats, densify
    from splat.gaussians import initial

    model = initial(8, 20, torch.Generator().manual_seed(0), torch.device("cpu"))
    optimizer = torch.optim.Adam(model.groups(1.0), lr=0.0)
    stats = ScreenStats(8, torch.device("cpu"))
    stats.gradient[:], stats.seen[:] = torch.arange(8) + 1.0, 1.0

    densify(model, optimizer, stats, threshold=1.0, limit=10)

    assert len(model) == 10
    assert sorted(model.binding.tolist()) == [0, 1, 2, 3, 4, 5, 6, 6, 7, 7]  # the strongest pull wins


def test_a_gaussian_has_59_numbers() -> None:
    from splat.gaussians import initial

    model = initial(4, 20, torch.Generator().manual_seed(0), torch.device("cpu"))

    assert sum(parameter[0].numel() for parameter in model.parameters.values()) == 59
