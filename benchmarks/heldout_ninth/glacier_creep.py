"""Fits the steady temperature inside a creeping glacier: physics-informed net on the advection-diffusion equation.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

CONDUCT, DEPTH = 0.05, 1.0
X, Y, Z = 0, 1, 2


class FourierNet(nn.Module):
    """Random Fourier features of the position, then a plain tanh network."""

    def __init__(self, waves=32, width=96, layers=4):
        super().__init__()
        self.register_buffer("waves", torch.randn(3, waves) * 1.5)
        sizes = [2 * waves] + [width] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, 1)
        for layer in self.hidden:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, points):
        phase = points @ self.waves
        h = torch.cat([phase.sin(), phase.cos()], 1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h).squeeze(1)


class Field:
    """A network together with its spatial derivatives."""

    def __init__(self, net, remember=False):
        self.net, self.remember = net, remember
        self.points = self.gradient = None

    def __call__(self, points):
        return self.net(points)

    def slopes(self, points):
        if self.remember and points is self.points:
            return self.gradient
        value = self.net(points)  # guilty
        (gradient,) = torch.autograd.grad(value.sum(), points, create_graph=True)  # guilty
        if self.remember:
            self.points, self.gradient = points, gradient
        return gradient

    def d(self, points, axis):
        return self.slopes(points)[:, axis]  # guilty

    def dd(self, points, axis):
        slope = self.d(points, axis)  # guilty
        (curve,) = torch.autograd.grad(slope.sum(), points, create_graph=True)
        return curve[:, axis]


def velocity(points):
    """Ice flows down the valley, faster at the surface and in the middle (Glen's law with n = 3)."""
    shape = (1 - (1 - points[:, Z]) ** 4) * (1 - (2 * points[:, Y] - 1) ** 2)
    return shape, 0.05 * torch.sin(math.tau * points[:, Y]), -0.1 * points[:, Z]


def strain_heat(points):
    return 0.4 * (1 - points[:, Z]) ** 4 * (1 - (2 * points[:, Y] - 1) ** 2)


def air_temperature(points):
    return -1.0 + 0.6 * points[:, X] + 0.1 * torch.sin(math.tau * points[:, Y])


class CreepLoss:
    def __init__(self, field, weights):
        self.field, self.weights = field, weights

    def interior(self, points):
        u, v, w = velocity(points)
        field = self.field
        carried = u * field.d(points, X) + v * field.d(points, Y) + w * field.d(points, Z)  # guilty
        spread = CONDUCT * (field.dd(points, X) + field.dd(points, Y) + field.dd(points, Z))
        return (carried - spread - strain_heat(points)).square().mean()

    def bed(self, points):
        """Geothermal heat enters from below."""
        return (CONDUCT * self.field.d(points, Z) + 0.03).square().mean()

    def surface(self, points):
        return (self.field(points) - air_temperature(points)).square().mean()

    def __call__(self, inside, below, above):
        parts = {"interior": self.interior(inside), "bed": self.bed(below), "surface": self.surface(above)}
        return sum(self.weights[name] * part for name, part in parts.items()), parts


def draw(count, generator, depth=None):
    points = torch.rand(count, 3, generator=generator)
    if depth is not None:
        points[:, Z] = depth
    return points.requires_grad_()


def profile(field, rows=6):
    """Temperatures down a borehole in the middle of the valley."""
    hole = torch.full((rows, 3), 0.5)
    hole[:, Z] = torch.linspace(0, DEPTH, rows)
    with torch.no_grad():
        return " ".join(f"{value:.2f}" for value in field(hole).tolist())


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--points", type=int, default=512)
    args = cli.parse_args()
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(80)

    net = FourierNet()
    field = Field(net, remember=args.fixed)
    criterion = CreepLoss(field, {"interior": 1.0, "bed": 5.0, "surface": 20.0})
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.998)

    for step in range(1, args.steps + 1):
        inside = draw(args.points, generator)
        below = draw(args.points // 8, generator, 0.0)
        above = draw(args.points // 4, generator, DEPTH)
        loss, parts = criterion(inside, below, above)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == args.steps:
            told = " ".join(f"{name} {part.item():.4f}" for name, part in parts.items())
            print(f"step {step} loss {loss.item():.4f} {told}")
    print("borehole", profile(field))


if __name__ == "__main__":
    main()
