"""Adaptive density: where the image pulls at a Gaussian, clone or split it; where it has faded, drop it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from splat.gaussians import GaussianModel
from splat.linear import quaternion_matrix, transform
from splat.render import Rendered

_SMALL = 0.35  # of the face's size: below it a Gaussian is cloned, above it split
_FADED = 0.01
_SHRINK = 1.6


class ScreenStats:
    """What was seen of each Gaussian on the screen since the last densification."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.reset(count, device)

    def reset(self, count: int, device: torch.device) -> None:
        """Forget everything; there are `count` Gaussians now."""
        self.gradient = torch.zeros(count, device=device)
        self.seen = torch.zeros(count, device=device)
        self.max_radii = torch.zeros(count, device=device)

    def update(self, rendered: Rendered, resolution: int) -> int:
        """Add one step's cameras; returns how many Gaussians they saw."""
        # In units of half the image, so that thresholds do not depend on the resolution.
        pull = rendered.screen_gradient().norm(dim=-1) * (resolution / 2)
        for gradient, radii in zip(pull, rendered.radii, strict=True):
            visible = radii > 0
            self.max_radii[visible] = torch.maximum(self.max_radii[visible], radii[visible])
            self.gradient[visible] += gradient[visible]
            self.seen[visible] += 1
        return int((rendered.radii > 0).sum().item())

    def state(self) -> dict[str, Tensor]:
        return {"gradient": self.gradient, "seen": self.seen, "max_radii": self.max_radii}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])


@torch.no_grad()
def densify(
    model: GaussianModel, optimizer: torch.optim.Optimizer, stats: ScreenStats, threshold: float, limit: int
) -> None:
    """Clone, split and prune, with the optimizer's moments kept for the Gaussians that stay."""
    pull = stats.gradient / stats.seen.clamp(min=1)
    chosen = pull >= threshold
    room = max(0, limit - len(model))
    if int(chosen.sum().item()) > room:  # the strongest first
        chosen = torch.zeros_like(chosen)
        chosen[pull.topk(min(room, len(pull))).indices] = True
        chosen &= pull >= threshold
    large = model.scales.amax(dim=1) > _SMALL
    clones = (chosen & ~large).nonzero().squeeze(1)
    splits = (chosen & large).nonzero().squeeze(1)
    # A Gaussian that has faded is dropped, and one that is split gives way to its two halves.
    keep = ((model.opacities >= _FADED) & ~(chosen & large)).nonzero().squeeze(1)
    _rewrite(model, optimizer, keep, clones, splits)
    stats.reset(len(model), model.binding.device)


def _rewrite(
    model: GaussianModel, optimizer: torch.optim.Optimizer, keep: Tensor, clones: Tensor, splits: Tensor
) -> None:
    source = torch.cat([keep, clones, splits, splits])
    halves = slice(len(keep) + len(clones), len(source))
    scales = model.scales[source[halves]]
    turn = quaternion_matrix(model["rotation"][source[halves]])
    shift = transform(turn, torch.randn_like(scales) * scales)

    def rows(name: str, old: Tensor) -> Tensor:
        new = old[source]
        if name == "moment":
            new[len(keep) :] = 0
        elif name == "xyz":
            new[halves] += shift
        elif name == "scaling":
            new[halves] -= math.log(_SHRINK)
        return new

    model.rewrite(optimizer, rows, model.binding[source])
