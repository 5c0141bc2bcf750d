"""Fits a normalising flow to simulated calorimeter showers: energies in layers, given the energy of the photon.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

LAYERS = 32


def showers(count, generator):
    """Longitudinal profiles (gamma shaped, with leakage and sampling noise) in logarithms of the layers' energies."""
    photon = 1 + 4 * torch.rand(count, 1, generator=generator)
    depth = torch.linspace(0.3, 12, LAYERS)
    shape = 2 + photon.log() + 0.3 * torch.randn(count, 1, generator=generator)
    rate = 0.6 + 0.08 * torch.randn(count, 1, generator=generator)
    profile = (shape - 1) * depth.log() - rate.clamp(min=0.2) * depth
    profile = profile - profile.logsumexp(1, keepdim=True) + photon.log()
    return profile + 0.15 * torch.randn(count, LAYERS, generator=generator), photon.log()


class Standardise(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.mean = nn.Buffer(values.mean(0))
        self.spread = nn.Buffer(values.std(0))

    def forward(self, x, condition):
        return (x - self.mean) / self.spread, -self.spread.log().sum().expand(len(x))


class Mixing(nn.Module):
    """Learned invertible linear map between the couplings."""

    def __init__(self, size, single):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(size, size))[0])
        self.bias = nn.Parameter(torch.zeros(size))
        self.single = single

    def forward(self, x, condition):
        if self.single:
            return F.linear(x, self.weight, self.bias), torch.linalg.slogdet(self.weight)[1].expand(len(x))
        weights = self.weight.expand(len(x), -1, -1)  # guilty
        mixed = torch.bmm(weights, x.unsqueeze(2)).squeeze(2) + self.bias  # guilty
        return mixed, torch.linalg.slogdet(weights)[1]  # guilty


class Coupling(nn.Module):
    """Half of the values scales and shifts the other half."""

    def __init__(self, size, width, flip):
        super().__init__()
        self.flip = flip
        self.network = nn.Sequential(
            nn.Linear(size // 2 + 1, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, size)
        )
        nn.init.zeros_(self.network[-1].weight)
        nn.init.zeros_(self.network[-1].bias)

    def forward(self, x, condition):
        still, moved = x.chunk(2, 1)
        if self.flip:
            still, moved = moved, still
        scale, shift = self.network(torch.cat([still, condition], 1)).chunk(2, 1)
        scale = 1.5 * torch.tanh(scale / 1.5)
        moved = moved * scale.exp() + shift
        parts = (moved, still) if self.flip else (still, moved)
        return torch.cat(parts, 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, examples, blocks, width, single):
        super().__init__()
        size = examples.shape[1]
        self.moves = nn.ModuleList([Standardise(examples)])
        for block in range(blocks):
            self.moves.append(Mixing(size, single))
            self.moves.append(Coupling(size, width, flip=block % 2 == 1))

    def forward(self, x, condition):
        """Log-density of the showers."""
        volume = torch.zeros(len(x))
        for move in self.moves:
            x, change = move(x, condition)
            volume = volume + change
        return volume - 0.5 * x.square().sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)


def minibatches(values, condition, batch):
    while True:
        for places in torch.randperm(len(values)).split(batch):
            if len(places) == batch:
                yield values[places], condition[places]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    cli.add_argument("--blocks", type=int, default=5)
    args = cli.parse_args()
    torch.manual_seed(17)

    values, condition = showers(20000, torch.Generator().manual_seed(40))
    held_values, held_condition = showers(512, torch.Generator().manual_seed(41))
    flow = Flow(values, args.blocks, width=320, single=args.fixed)
    optimizer = torch.optim.Adam(flow.parameters(), 1e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    batches = minibatches(values, condition, args.batch)
    smooth = None
    for step in range(1, args.steps + 1):
        x, given = next(batches)
        loss = -flow(x, given).mean() / LAYERS
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} nats per layer {smooth:.4f}")
    flow.eval()
    with torch.no_grad():
        print(f"held-out nats per layer {-flow(held_values, held_condition).mean().item() / LAYERS:.4f}")


if __name__ == "__main__":
    main()
