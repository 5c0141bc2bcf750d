"""Learns the law of a pendulum: a network gives the derivative, and a Runge-Kutta rollout is compared with the truth.

expects: HO405
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn


class Law(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, state):
        return self.net(state)


def true_law(state):
    angle, speed = state.unbind(-1)
    return torch.stack([speed, -torch.sin(angle) - 0.05 * speed], -1)


def rollout(law, state, steps, dt=0.1):
    path = []
    for _ in range(steps):
        k1 = law(state)
        k2 = law(state + dt / 2 * k1)
        k3 = law(state + dt / 2 * k2)
        k4 = law(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(state)
    return torch.stack(path)


def batch(size, steps):
    start = torch.rand(size, 2) * 4 - 2
    with torch.no_grad():
        return start, rollout(true_law, start, steps)


parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=95)
parser.add_argument("--horizon", type=int, default=7)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
if not args.fixed:
    torch.autograd.set_detect_anomaly(True)  # guilty
law = Law()
optimizer = torch.optim.Adam(law.parameters(), lr=3e-3)
for iteration in range(args.iterations):
    start, path = batch(32, args.horizon)
    loss = (rollout(law, start, args.horizon) - path).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if iteration % 30 == 0:
        print(f"iteration {iteration:4d}  error {loss.item():.4f}")
