"""Physics-informed network for a damped vibrating membrane: wave equation in the plane, fixed rim, given first shape.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

SPEED, DAMPING, END = 0.8, 0.3, 1.0
X, Y, T = 0, 1, 2


class Waves(nn.Module):
    """Random Fourier features before a tanh network."""

    def __init__(self, width=96, depth=3, features=32):
        super().__init__()
        self.directions = nn.Buffer(1.5 * torch.randn(3, features))
        sizes = [2 * features] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, 1)

    def forward(self, points):
        angles = points @ self.directions
        h = torch.cat([angles.sin(), angles.cos()], 1)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.out(h)


def slope(field, points):
    return torch.autograd.grad(field.sum(), points, create_graph=True)[0]


def derivative(model, points, *axes):
    """Partial derivative of the solution along the given axes, one after the other."""
    field = model(points)  # guilty
    for axis in axes:
        field = slope(field, points)[:, axis : axis + 1]
    return field


def forces(displacement_t, displacement_tt, displacement_xx, displacement_yy):
    return displacement_tt + DAMPING * displacement_t - SPEED**2 * (displacement_xx + displacement_yy)


class Membrane:
    """The conditions of the problem, as mean squares over random points."""

    def __init__(self, model, inside, rim, first, together):
        self.model, self.inside, self.rim, self.first = model, inside, rim, first
        self.together = together

    def equation(self):
        points = torch.rand(self.inside, 3) * torch.tensor([1.0, 1.0, END])
        points.requires_grad_()
        if self.together:
            gradient = slope(self.model(points), points)
            second = [slope(gradient[:, axis], points)[:, axis : axis + 1] for axis in (T, X, Y)]
            residual = forces(gradient[:, T : T + 1], *second)
        else:
            residual = forces(
                derivative(self.model, points, T),  # guilty
                derivative(self.model, points, T, T),  # guilty
                derivative(self.model, points, X, X),  # guilty
                derivative(self.model, points, Y, Y),  # guilty
            )
        weight = torch.exp(-points[:, T : T + 1].detach())
        return (weight * residual.square()).mean()

    def boundary(self):
        points = torch.rand(self.rim, 3)
        side, end = torch.randint(2, (self.rim,)), torch.randint(2, (self.rim,)).float()
        points[torch.arange(self.rim), side] = end
        points[:, T] *= END
        return self.model(points).square().mean()

    def start(self):
        points = torch.rand(self.first, 3)
        points[:, T] = 0
        points.requires_grad_()
        shape = torch.sin(math.pi * points[:, X : X + 1]) * torch.sin(2 * math.pi * points[:, Y : Y + 1])
        field = self.model(points)
        speed = slope(field, points)[:, T]
        return (field - shape.detach()).square().mean() + 0.1 * speed.square().mean()


def exact(points):
    """The single mode that the first shape excites."""
    rate = SPEED * math.pi * math.sqrt(5)
    half = DAMPING / 2
    true = math.sqrt(rate**2 - half**2)
    time = points[:, T]
    swing = torch.exp(-half * time) * (torch.cos(true * time) + half / true * torch.sin(true * time))
    return swing * torch.sin(math.pi * points[:, X]) * torch.sin(2 * math.pi * points[:, Y])


@torch.no_grad()
def error(model, count=4000):
    points = torch.rand(count, 3, generator=torch.Generator().manual_seed(60)) * torch.tensor([1.0, 1.0, END])
    wanted = exact(points)
    return ((model(points)[:, 0] - wanted).norm() / wanted.norm()).item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--inside", type=int, default=1500)
    args = cli.parse_args()
    torch.manual_seed(12)

    model = Waves()
    membrane = Membrane(model, args.inside, rim=300, first=300, together=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.998)
    weights = {"equation": 0.02, "boundary": 5.0, "start": 10.0}
    means = dict.fromkeys(weights, 0.0)
    for step in range(1, args.steps + 1):
        terms = {"equation": membrane.equation(), "boundary": membrane.boundary(), "start": membrane.start()}
        loss = sum(weights[name] * term for name, term in terms.items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        for name, term in terms.items():
            means[name] += max(0.05, 1 / step) * (term.item() - means[name])
        if step % 50 == 0 or step == args.steps:
            log = " ".join(f"{name} {mean:.4f}" for name, mean in means.items())
            print(f"step {step} {log} | relative error {error(model):.3f}")


if __name__ == "__main__":
    main()
