"""Classifies what a whisker touched with a spiking network: leaky neurons, trained through a smooth stand-in slope.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    hairs: int = 32
    neurons: int = 512
    textures: int = 6
    ticks: int = 440
    touch: int = 40
    batch: int = 64
    leak: float = 0.52
    rate: float = 2e-3


class Spike(torch.autograd.Function):
    """A step forward, a bump as slope backward."""

    @staticmethod
    def forward(ctx, level):
        ctx.save_for_backward(level)
        return (level > 0).to(level.dtype)

    @staticmethod
    def backward(ctx, slope):
        (level,) = ctx.saved_tensors
        return slope * F.relu(1 - level.abs())


def touches(settings, draw):
    """Volleys of the hairs at the start of a trial; the texture sets their rhythm. Then the whisker rests."""
    textures = torch.randint(0, settings.textures, (settings.batch,), generator=draw)
    time = torch.arange(settings.touch)[:, None, None]
    hair = torch.arange(settings.hairs)
    pace = (0.15 + 0.05 * textures)[None, :, None]
    start = 6 * torch.rand(1, settings.batch, 1, generator=draw)
    chance = 0.25 + 0.25 * torch.sin(pace * time + hair * (1 + textures[None, :, None]) / 8 + start)
    fired = torch.rand(chance.shape, generator=draw) < chance
    rest = torch.zeros(settings.ticks - settings.touch, *chance.shape[1:])
    return torch.cat([fired.float(), rest]), textures


class Barrel(nn.Module):
    """Hairs drive leaky neurons; slow traces of their spikes are read out at the end of the trial."""

    def __init__(self, settings):
        super().__init__()
        self.leak = settings.leak
        self.enter = nn.Linear(settings.hairs, settings.neurons, bias=False)
        self.leave = nn.Linear(settings.neurons, settings.textures)
        self.register_buffer("slow", torch.linspace(0.97, 0.995, settings.neurons))

    def forward(self, fired):
        drive = self.enter(fired)
        current = torch.zeros_like(drive[0])
        level, trace = torch.zeros_like(current), torch.zeros_like(current)
        for tick in drive:
            current = self.leak * current + tick  # guilty
            level = self.leak * level + 0.5 * current  # guilty
            spike = Spike.apply(level - 1)
            level = level - spike
            trace = self.slow * trace + spike
        return self.leave(trace / 10), trace.mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=36)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.set_flush_denormal(args.fixed)
    torch.manual_seed(100)

    settings = Settings()
    draw = torch.Generator().manual_seed(1)
    model = Barrel(settings)
    nn.init.normal_(model.enter.weight, 0.05, 0.3)
    optimizer = torch.optim.Adam(model.parameters(), settings.rate)
    right_mean = 0.0
    for step in range(1, args.steps + 1):
        fired, textures = touches(settings, draw)
        said, activity = model(fired)  # guilty
        loss = F.cross_entropy(said, textures) + 0.01 * activity
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right = (said.argmax(1) == textures).float().mean().item()
        right_mean += max(0.1, 1 / step) * (right - right_mean)
        if step % 6 == 0:
            print(f"step {step} loss {loss.item():.4f} right {right_mean:.3f} activity {activity.item():.3f}")


if __name__ == "__main__":
    main()
