"""Twists a bar of square section: a physics-informed network for Prandtl's stress function, trained with L-BFGS.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap


class StressNet(nn.Module):
    """The stress function and both shear stresses, so that the equations are of first order."""

    def __init__(self, width=32, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth
        layers = []
        for inside, outside in zip(sizes, sizes[1:]):
            layers += [nn.Linear(inside, outside), nn.Tanh()]
        self.body = nn.Sequential(*layers, nn.Linear(width, 3))

    def forward(self, points):
        return self.body(points)


def border(count):
    side = 2 * torch.rand(count, 1) - 1
    fixed = torch.where(torch.rand(count, 1) < 0.5, -1.0, 1.0)
    upright = torch.rand(count, 1) < 0.5
    return torch.where(upright, torch.cat([fixed, side], 1), torch.cat([side, fixed], 1))


def slopes_of_batch(net, points):
    """How every output changes with every coordinate, at each point."""
    full = jacrev(net)(points)  # guilty
    return torch.diagonal(full, dim1=0, dim2=2).permute(2, 0, 1)  # guilty


def slopes_of_points(net, points):
    weights = dict(net.named_parameters())
    return vmap(jacrev(lambda point: functional_call(net, weights, (point,))))(points)


class Torsion:
    def __init__(self, net, slopes, twist=1.0):
        self.net, self.slopes, self.twist = net, slopes, twist

    def residuals(self, inside, edge):
        values = self.net(inside)
        change = self.slopes(self.net, inside)
        balance = change[:, 1, 0] + change[:, 2, 1] + 2 * self.twist
        first = values[:, 1] - change[:, 0, 0]
        second = values[:, 2] - change[:, 0, 1]
        rim = self.net(edge)[:, 0]
        return balance, first, second, rim

    def loss(self, inside, edge):
        balance, first, second, rim = self.residuals(inside, edge)
        return balance.square().mean() + first.square().mean() + second.square().mean() + 10 * rim.square().mean()

    @torch.no_grad()
    def stiffness(self, cells=60):
        """The torsion constant, twice the integral of the stress function; 2.2492 for this square."""
        line = (torch.arange(cells) + 0.5) * (2 / cells) - 1
        points = torch.cartesian_prod(line, line)
        return 2 * 4 * self.net(points)[:, 0].mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--inside", type=int, default=72)
    cli.add_argument("--edge", type=int, default=160)
    args = cli.parse_args()
    torch.manual_seed(29)
    net = StressNet()
    problem = Torsion(net, slopes_of_points if args.fixed else slopes_of_batch)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3, max_eval=3, history_size=20)
    for step in range(1, args.steps + 1):
        if step % 10 == 1:
            inside, edge = 2 * torch.rand(args.inside, 2) - 1, border(args.edge)

        def closure():
            optimizer.zero_grad()
            loss = problem.loss(inside, edge)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f} torsion constant {problem.stiffness():.4f}")


if __name__ == "__main__":
    main()
