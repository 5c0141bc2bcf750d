"""The trainable Gaussians: 59 numbers each, bound to the faces of the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from splat.config import LEARNING_RATES, XYZ_FINAL_RATE
from splat.harmonics import C0, TERMS
from splat.linear import compose, quaternion_matrix, transform
from splat.mesh import Frames
from splat.render import Posed

FIELDS = tuple(LEARNING_RATES)


class GaussianModel:
    """Positions, rotations and scales are relative to the face a Gaussian is bound to."""

    def __init__(self, values: Mapping[str, Tensor], binding: Tensor) -> None:
        self.parameters = {name: nn.Parameter(values[name]) for name in FIELDS}
        self.binding = binding

    def __len__(self) -> int:
        return len(self.binding)

    def __getitem__(self, name: str) -> nn.Parameter:
        return self.parameters[name]

    @property
    def scales(self) -> Tensor:
        """Standard deviations in units of the face's size."""
        return self["scaling"].exp()

    @property
    def opacities(self) -> Tensor:
        return self["opacity"].squeeze(1).sigmoid()

    def posed(self, frames: Frames) -> Posed:
        """The Gaussians in world space for each of the poses."""
        turn, size = frames.rotation[:, self.binding], frames.size[:, self.binding].unsqueeze(-1)
        means = transform(turn, self["xyz"] * size) + frames.centre[:, self.binding]
        axes = compose(turn, quaternion_matrix(self["rotation"]) * self.scales.unsqueeze(-2)) * size.unsqueeze(-1)
        harmonics = torch.cat([self["sh_dc"], self["sh_rest"]], dim=1)
        return Posed(means=means, axes=axes, opacity=self["opacity"].squeeze(1), harmonics=harmonics)

    def groups(self, lr_scale: float) -> list[dict[str, Any]]:
        """Parameter groups: each kind of number has a learning rate of its own."""
        return [{"params": [self[name]], "lr": rate * lr_scale, "name": name} for name, rate in LEARNING_RATES.items()]

    def rewrite(self, optimizer: torch.optim.Optimizer, rows: Callable[[str, Tensor], Tensor], binding: Tensor) -> None:
        """Replace each parameter, and its moments in the optimizer, by `rows(name or "moment", old values)`."""
        for group in optimizer.param_groups:
            name, old = group["name"], group["params"][0]
            state = optimizer.state.pop(old, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in state:
                    state[moment] = rows("moment", state[moment])
            new = nn.Parameter(rows(name, old.detach()))
            group["params"][0] = self.parameters[name] = new
            if state:
                optimizer.state[new] = state
        self.binding = binding


def set_position_rate(optimizer: torch.optim.Optimizer, step: int, decay_steps: int, lr_scale: float = 1.0) -> float:
    """Let the positions' learning rate fall exponentially; returns it."""
    done = min(step / decay_steps, 1.0)
    first = LEARNING_RATES["xyz"]
    rate: float = lr_scale * first * (XYZ_FINAL_RATE / first) ** done
    for group in optimizer.param_groups:
        if group["name"] == "xyz":
            group["lr"] = rate
    return rate


def initial(count: int, faces: int, generator: torch.Generator, device: torch.device) -> GaussianModel:
    """Grey Gaussians spread evenly over the faces."""
    binding = torch.arange(count) % faces
    xyz = torch.randn(count, 3, generator=generator) * 0.2
    xyz[:, 2] *= 0.2  # flat on the face
    rotation = torch.zeros(count, 4)
    rotation[:, 0] = 1
    spread = 0.5 / max(1.0, count / faces) ** 0.5
    scaling = torch.full((count, 3), spread).log() + torch.randn(count, 3, generator=generator) * 0.1
    sh_dc = torch.rand(count, 1, 3, generator=generator) * 0.2 / C0 - 0.1 / C0
    values = {
        "xyz": xyz,
        "rotation": rotation,
        "scaling": scaling,
        "opacity": torch.full((count, 1), 0.5).logit(),
        "sh_dc": sh_dc,
        "sh_rest": torch.zeros(count, TERMS - 1, 3),
    }
    return GaussianModel({name: value.to(device) for name, value in values.items()}, binding.to(device))
