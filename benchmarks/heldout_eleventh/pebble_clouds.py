"""Squeezes scanned pebbles, clouds of points, into a short code and back; judged by the cheapest way to move points.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


def scan_pebbles(count, points, draw):
    """Points on lumpy ellipsoids, in no order."""
    ways = F.normalize(torch.randn(count, points, 3, generator=draw), dim=2)
    axes = 0.4 + 0.6 * torch.rand(count, 1, 3, generator=draw)
    lumps = F.normalize(torch.randn(count, 3, 3, generator=draw), dim=2)
    height = 0.25 * (4 * ways @ lumps.transpose(1, 2)).sin().sum(2, keepdim=True) / 3
    return axes * ways * (1 + height)


class PebbleCoder(nn.Module):
    def __init__(self, points, code=24, width=96):
        super().__init__()
        self.points = points
        self.each = nn.Sequential(nn.Linear(3, width), nn.ReLU(True), nn.Linear(width, 2 * width))
        self.squeeze = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(True), nn.Linear(width, code))
        self.unfold = nn.Sequential(
            nn.Linear(code, 2 * width), nn.ReLU(True), nn.Linear(2 * width, 2 * width), nn.ReLU(True),
            nn.Linear(2 * width, 3 * points),
        )  # fmt: skip

    def forward(self, clouds):
        code = self.squeeze(self.each(clouds).amax(1))
        return self.unfold(code).view(-1, self.points, 3)


def moving_plan(cost, sharpness, rounds):
    """Sinkhorn's plan between two clouds of as many points: its potentials settle in turns."""
    share = -math.log(cost.shape[1])
    here, there = torch.zeros_like(cost[:, :, 0]), torch.zeros_like(cost[:, 0])
    sharp = cost / -sharpness
    for _ in range(rounds):
        here = share - (sharp + there[:, None]).logsumexp(2)
        there = share - (sharp + here[:, :, None]).logsumexp(1)
    return (sharp + here[:, :, None] + there[:, None]).exp()


def moving_cost(made, clouds, sharpness=0.02, rounds=20):
    cost = torch.cdist(made, clouds).square()
    with torch.no_grad():
        plan = moving_plan(cost, sharpness, rounds)
    return (plan * cost).sum((1, 2)).mean()


@torch.no_grad()
def nearest_error(model, clouds):
    """Mean distance to the nearest point, both ways."""
    apart = torch.cdist(model(clouds), clouds)
    return 0.5 * (apart.amin(1).mean() + apart.amin(2).mean()).item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--points", type=int, default=128)
    args = cli.parse_args()
    torch.manual_seed(120)

    draw = torch.Generator().manual_seed(1)
    held = scan_pebbles(24, args.points, draw)
    model = PebbleCoder(args.points)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(1, args.steps + 1):
        clouds = scan_pebbles(16, args.points, draw)
        loss = moving_cost(model(clouds), clouds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step} moving cost {loss.item():.4f} nearest {nearest_error(model, held):.4f}")


if __name__ == "__main__":
    main()
