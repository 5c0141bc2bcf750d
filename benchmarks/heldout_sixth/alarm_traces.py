"""Prediction of the next alarm of industrial plants from fading traces of the alarms before.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ALARMS, PLANTS = 1200, 64
FADE = (0.6, 0.75)


class AlarmLog:
    """Every plant is in one of 40 states; each has its few alarms, and states change seldom."""

    def __init__(self, seed, states=40, common=6):
        self.generator = torch.Generator().manual_seed(seed)
        self.menu = torch.randint(0, ALARMS, (states, common), generator=self.generator)
        self.state = torch.randint(0, states, (PLANTS,), generator=self.generator)
        self.position = torch.zeros(PLANTS, dtype=torch.long)

    def tick(self):
        states, common = self.menu.shape
        change = torch.rand(PLANTS, generator=self.generator) < 0.02
        fresh = torch.randint(0, states, (PLANTS,), generator=self.generator)
        self.state = torch.where(change, fresh, self.state)
        skip = (torch.rand(PLANTS, generator=self.generator) < 0.15).long()
        self.position = (self.position + 1 + skip) % common
        return self.menu[self.state, self.position]


class FadingTraces:
    """For every plant and alarm, how long ago it rang, at two time scales."""

    def __init__(self, fixed, floor=1e-20):
        self.values = torch.zeros(len(FADE), PLANTS, ALARMS)
        self.fade = torch.tensor(FADE).view(-1, 1, 1)
        self.plants = torch.arange(PLANTS)
        self.fixed, self.floor = fixed, floor

    def add(self, alarm):
        self.values *= self.fade  # guilty
        if self.fixed:
            self.values[self.values < self.floor] = 0.0
        self.values[:, self.plants, alarm] += 1.0

    def features(self):
        return self.values.permute(1, 0, 2).flatten(1)


class AlarmNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = nn.Linear(len(FADE) * ALARMS, width)
        self.hidden = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, ALARMS)

    def forward(self, features):
        return self.out(self.hidden(self.inp(features)))  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=700)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--warm-up", type=int, default=330, help="ticks of the log before training starts")
    args = cli.parse_args()
    torch.manual_seed(40)
    log, traces = AlarmLog(41), FadingTraces(args.fixed)
    for _ in range(args.warm_up):
        traces.add(log.tick())
    model = AlarmNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    hits = 0.0
    for step in range(1, args.steps + 1):
        alarm = log.tick()
        logits = model(traces.features())
        loss = F.cross_entropy(logits, alarm)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        hits += (logits.argmax(1) == alarm).float().mean().item()
        traces.add(alarm)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} hits {hits / 50:.3f}")
            hits = 0.0


if __name__ == "__main__":
    main()
