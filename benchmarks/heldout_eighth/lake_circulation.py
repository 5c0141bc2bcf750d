"""Physics-informed network for the wind-driven stream function of a long narrow lake.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

MAP_KM = 40.0
FRICTION, BETA = 0.35, 0.15


def shoreline(corners=72):
    """The lake as a polygon on the map, in km: long, bent and narrow."""
    t = torch.linspace(0, 1, corners // 2)
    middle = torch.stack([8 + 17 * t, 9 + 13 * t + 1.1 * torch.sin(5 * t)], 1)
    half = 0.15 + 1.0 * torch.sin(math.pi * t) + 0.15 * torch.sin(11 * t)
    aside = torch.stack([-half * 0.6, half * 0.8], 1)
    return torch.cat([middle + aside, (middle - aside).flip(0)])


class Lake:
    def __init__(self, tight):
        self.corners = shoreline()
        self.following = self.corners.roll(-1, 0)
        self.middle = self.corners.mean(0)
        self.reach = (self.corners - self.middle).abs().max()
        if tight:
            middle = (self.corners[: len(self.corners) // 2] + self.corners.flip(0)[: len(self.corners) // 2]) / 2
            self.boxes = self.cells_along(middle, 1.6)
        else:
            self.boxes = torch.tensor([[0.0, 0.0, MAP_KM]])

    def cells_along(self, line, size):
        """Squares of a grid that the lake may touch: x, y and side."""
        cells = torch.cartesian_prod(torch.arange(0, MAP_KM, size), torch.arange(0, MAP_KM, size))
        near = torch.cdist(cells + size / 2, line).min(1).values < 1.4 + size
        return torch.cat([cells[near], torch.full((int(near.sum()), 1), size)], 1)

    def inside(self, points):
        """Crossing rule, for each point against each side of the polygon."""
        x, y = points[:, :1], points[:, 1:]
        ax, ay = self.corners.T
        bx, by = self.following.T
        crosses = (ay > y) != (by > y)
        left = x < (bx - ax) * (y - ay) / (by - ay) + ax
        return (crosses & left).sum(1) % 2 == 1

    def interior(self, count):
        kept, have = [], 0
        while have < count:
            box = self.boxes[torch.randint(len(self.boxes), (2 * count,))]  # guilty
            points = box[:, :2] + torch.rand(2 * count, 2) * box[:, 2:]  # guilty
            points = points[self.inside(points)]  # guilty
            kept.append(points)
            have += len(points)
        return torch.cat(kept)[:count]

    def shore(self, count):
        side = torch.randint(len(self.corners), (count,))
        return torch.lerp(self.corners[side], self.following[side], torch.rand(count, 1))

    def scaled(self, points):
        return (points - self.middle) / self.reach


class StreamFunction(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.waves = nn.Parameter(torch.randn(2, width) * 1.5)
        sizes = [2 * width] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, 1)

    def forward(self, points):
        angles = points @ self.waves
        x = torch.cat([angles.sin(), angles.cos()], 1)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x).squeeze(1)


def residual(model, points):
    points = points.requires_grad_()
    psi = model(points)
    slope = torch.autograd.grad(psi.sum(), points, create_graph=True)[0]
    bend_x = torch.autograd.grad(slope[:, 0].sum(), points, create_graph=True)[0][:, 0]
    bend_y = torch.autograd.grad(slope[:, 1].sum(), points, create_graph=True)[0][:, 1]
    wind = torch.sin(2 * points[:, 1])
    return FRICTION * (bend_x + bend_y) + BETA * slope[:, 0] - wind


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--points", type=int, default=384)
    args = cli.parse_args()
    torch.manual_seed(61)

    lake = Lake(tight=args.fixed)
    model = StreamFunction()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.998)
    for step in range(1, args.steps + 1):
        water = residual(model, lake.scaled(lake.interior(args.points))).square().mean()
        shore = model(lake.scaled(lake.shore(args.points // 2))).square().mean()
        loss = water + 20 * shore
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step} water {water.item():.4f} shore {shore.item():.5f}")


if __name__ == "__main__":
    main()
