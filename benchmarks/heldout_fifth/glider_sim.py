"""Learns to steer gliders through gusts by differentiating through the simulated flight.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
from typing import NamedTuple

import torch
import torch.nn as nn


class State(NamedTuple):
    pos: torch.Tensor
    vel: torch.Tensor
    pitch: torch.Tensor


class Air:
    """A gust field of random vortices, different in every flight."""

    def __init__(self, batch, vortices, gen):
        self.center = torch.rand(batch, vortices, 2, generator=gen) * torch.tensor([40.0, 20.0])
        self.spin = torch.randn(batch, vortices, generator=gen) * 3
        self.size = 2 + 3 * torch.rand(batch, vortices, generator=gen)

    def wind(self, pos):
        gap = pos[:, None] - self.center
        near = self.spin * torch.exp(-gap.pow(2).sum(-1) / self.size**2)
        return torch.stack([-(near * gap[..., 1]).sum(-1), (near * gap[..., 0]).sum(-1)], -1) / 4


class Pilot(nn.Module):
    def __init__(self, width=256, memory=128):
        super().__init__()
        self.sense = nn.Sequential(nn.Linear(9, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.memory = nn.GRUCell(width, memory)
        self.act = nn.Linear(memory, 1)

    def forward(self, seen, h):
        h = self.memory(self.sense(seen), h)
        return torch.tanh(self.act(h)).squeeze(-1), h


def fly(state, elevator, air, dt=0.1):
    wind = air.wind(state.pos)
    flow = state.vel - wind
    speed = flow.pow(2).sum(-1).add(1e-4).sqrt()
    attack = state.pitch - torch.atan2(flow[:, 1], flow[:, 0])
    lift = 0.09 * speed * torch.sin(2 * attack)
    drag = 0.01 * speed * (1 + 4 * torch.sin(attack) ** 2)
    force = torch.stack([-lift * flow[:, 1] - drag * flow[:, 0], lift * flow[:, 0] - drag * flow[:, 1] - 9.8], -1)
    vel = state.vel + dt * force
    return State(state.pos + dt * vel, vel, state.pitch + dt * (elevator - 0.5 * attack)), wind


def flight(pilot, batch, ticks, gen):
    air = Air(batch, 12, gen)
    start = torch.tensor([0.0, 12.0]) + torch.randn(batch, 2, generator=gen)
    state = State(start, torch.tensor([11.0, 0.0]).repeat(batch, 1), torch.zeros(batch))
    goal = torch.tensor([35.0, 10.0]) + 2 * torch.randn(batch, 2, generator=gen)
    h = torch.zeros(batch, 128)
    cost = 0.0
    wind = torch.zeros(batch, 2)
    for _ in range(ticks):
        seen = torch.cat([(goal - state.pos) / 10, state.vel / 10, state.pitch[:, None], wind, state.pos / 20], -1)
        elevator, h = pilot(seen, h)
        state, wind = fly(state, elevator, air)
        cost = cost + 0.01 * elevator.pow(2).mean() + 0.02 * (state.vel[:, 1] / 10).pow(2).mean()
    return cost + ((goal - state.pos) / 10).pow(2).sum(-1).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--batch", type=int, default=192)
    cli.add_argument("--ticks", type=int, default=16)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    pilot = Pilot()
    optimizer = torch.optim.Adam(pilot.parameters(), lr=5e-4)
    for step in range(1, args.steps + 1):
        cost = flight(pilot, args.batch, args.ticks, gen)
        optimizer.zero_grad()
        cost.backward()
        nn.utils.clip_grad_norm_(pilot.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} cost {cost.item():.3f}")


if __name__ == "__main__":
    main()
