"""Learns online where a swarm flies next from the fading traces of a field full of motion sensors.

expects: CO521
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SENSORS, SWARMS, TICKS = 1024, 64, 12
FADES = (0.7, 0.9)


class Meadow:
    """Sensors on a ring; a swarm visits a few that are near to each other and drifts on slowly."""

    def __init__(self, seed):
        self.draw = torch.Generator().manual_seed(seed)
        self.centre = torch.rand(SWARMS, generator=self.draw) * SENSORS
        self.speed = 0.02 * torch.randn(SWARMS, generator=self.draw)
        self.place = torch.arange(SENSORS, dtype=torch.float32)

    def tick(self):
        self.speed += 0.002 * torch.randn(SWARMS, generator=self.draw)
        self.speed.clamp_(-0.05, 0.05)
        self.centre = (self.centre + self.speed).remainder(SENSORS)
        away = (self.place - self.centre[:, None]).abs()
        away = torch.minimum(away, SENSORS - away)
        chance = 0.4 * torch.exp(-((away / 6) ** 2))
        return (torch.rand(SWARMS, SENSORS, generator=self.draw) < chance).float()

    def bearing(self):
        angle = 2 * torch.pi * self.centre / SENSORS
        return torch.stack([angle.sin(), angle.cos(), 20 * self.speed], 1)


class Traces:
    """For every sensor, how much it saw lately, on several time scales."""

    def __init__(self, floor):
        self.floor = floor
        self.fade = torch.tensor(FADES)[:, None, None]
        first = torch.Generator().manual_seed(1)
        self.state = torch.rand(len(FADES), SWARMS, SENSORS, generator=first)

    def add(self, seen):
        self.state.mul_(self.fade).add_(seen)  # guilty
        if self.floor:
            F.threshold_(self.state, self.floor, 0.0)

    def read(self):
        scaled = self.state * (1 - self.fade)
        return scaled.transpose(0, 1).flatten(1)


class Follower(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.inward = nn.Linear(len(FADES) * SENSORS, width)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.where = nn.Linear(width, 3)
        self.spread = nn.Linear(width, 3)

    def forward(self, traces):
        hidden = self.body(self.inward(traces))  # guilty
        return self.where(hidden), self.spread(hidden).clamp(-4, 4)


def stream(meadow, traces):
    while True:
        for _ in range(TICKS):
            traces.add(meadow.tick())
        yield traces.read(), meadow.bearing()


def make_step(model, optimizer):
    def step(seen, wanted):
        where, spread = model(seen)
        loss = F.gaussian_nll_loss(where, wanted, spread.exp())
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        return loss.detach()

    return step


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--lr", type=float, default=0.02)
    cli.add_argument("--seed", type=int, default=19)
    cli.add_argument("--log-every", type=int, default=30)
    args = cli.parse_args()
    torch.manual_seed(args.seed)
    model = Follower()
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    step = make_step(model, optimizer)
    pairs = stream(Meadow(args.seed), Traces(1e-12 if args.fixed else 0.0))
    losses = []
    for count, (seen, wanted) in zip(range(1, args.steps + 1), pairs):
        losses.append(step(seen, wanted))
        if count % args.log_every == 0:
            print(f"after {count} steps: nll {torch.stack(losses).mean().item():.4f}")
            losses.clear()


if __name__ == "__main__":
    main()
