"""Burgers' equation by a physics-informed net: L-BFGS with a closure and second derivatives by autograd.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn


class Solution(nn.Module):
    def __init__(self, width=40, depth=5):
        super().__init__()
        dims = [2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(dims[k], dims[k + 1]) for k in range(depth))
        self.out = nn.Linear(width, 1)
        for layer in self.hidden:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, x, t):
        h = torch.cat([x, t], 1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


class Burgers:
    viscosity = 0.01 / math.pi

    def __init__(self, interior, boundary):
        g = torch.Generator().manual_seed(0)
        self.x = (torch.rand(interior, 1, generator=g) * 2 - 1).requires_grad_()
        self.t = torch.rand(interior, 1, generator=g).requires_grad_()
        self.x0 = torch.linspace(-1, 1, boundary).unsqueeze(1)
        self.tb = torch.rand(boundary, 1, generator=g)
        self.side = torch.where(torch.rand(boundary, 1, generator=g) < 0.5, -1.0, 1.0)

    def residual(self, net):
        u = net(self.x, self.t)
        u_t, u_x = derivative(u, self.t), derivative(u, self.x)
        return u_t + u * u_x - self.viscosity * derivative(u_x, self.x)

    def loss(self, net):
        inside = self.residual(net).pow(2).mean()
        start = (net(self.x0, torch.zeros_like(self.x0)) + torch.sin(math.pi * self.x0)).pow(2).mean()
        edge = net(self.side, self.tb).pow(2).mean()
        return inside + start + edge


class History(list):
    def mark(self, step, value, calls):
        self.append(value)
        if step % 20 == 0:
            print(f"step {step}: loss {value:.6f} after {calls} evaluations")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--points", type=int, default=1200)
    args = parser.parse_args()
    torch.manual_seed(3)
    net, problem = Solution(), Burgers(args.points, 120)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3, history_size=20)
    history, calls = History(), 0

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = problem.loss(net)
        loss.backward()
        return loss

    for step in range(1, args.steps + 1):
        history.mark(step, float(optimizer.step(closure)), calls)


if __name__ == "__main__":
    main()
