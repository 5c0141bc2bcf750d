"""Foretells the riders at every subway station a quarter of an hour ahead; how stations touch each other is learned.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def count_riders(stations, quarters, seed):
    """Counts with a daily rhythm that spread over lines of the network, log-scaled."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1, (stations, 2))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    links = np.exp(-((apart / 0.06) ** 2))
    links /= links.sum(1, keepdims=True)
    time = np.arange(quarters)[:, None]
    rhythm = 1.5 + np.sin(2 * np.pi * (time / 96 + rng.uniform(0, 0.3, stations)))
    counts = np.empty((quarters, stations), np.float32)
    state = np.zeros(stations)
    for quarter in range(quarters):
        state = 0.7 * links @ state + 0.3 * rhythm[quarter] + rng.normal(0, 0.12, stations)
        counts[quarter] = state
    return torch.from_numpy((counts - counts.mean()) / counts.std())


class Spread(nn.Module):
    """Mixes the features of stations up to three hops apart."""

    def __init__(self, width, inward):
        super().__init__()
        self.inward = inward
        self.mix = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, links, state):
        one = links @ state
        if self.inward:
            two = links @ one
            three = links @ two
        else:
            two = links @ links @ state  # guilty
            three = links @ links @ links @ state  # guilty
        near = torch.cat([state, one, two, three], 1)
        return self.norm(state + F.gelu(self.mix(near)))


class RiderNet(nn.Module):
    def __init__(self, stations, history, inward, width=64, depth=2, taste=16):
        super().__init__()
        self.sends = nn.Parameter(torch.randn(stations, taste))
        self.takes = nn.Parameter(torch.randn(stations, taste))
        self.enter = nn.Linear(history, width)
        self.layers = nn.ModuleList(Spread(width, inward) for _ in range(depth))
        self.leave = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def links(self):
        strength = F.relu(self.sends @ self.takes.T) / self.sends.shape[1] ** 0.5
        return F.dropout(strength.softmax(1), 0.1, self.training)

    def forward(self, past):
        """past: stations x history of one moment; the answer is the change from the last count."""
        links = self.links()
        state = self.enter(past)
        for layer in self.layers:
            state = layer(links, state)
        return past[:, -1] + self.leave(state).squeeze(1)


@torch.no_grad()
def test(model, counts, history, moments):
    model.eval()
    wrong = [F.l1_loss(model(counts[m - history : m].T), counts[m]).item() for m in moments]
    model.train()
    return sum(wrong) / len(wrong)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--stations", type=int, default=700)
    cli.add_argument("--history", type=int, default=12)
    args = cli.parse_args()
    torch.manual_seed(30)

    counts = count_riders(args.stations, 800, seed=1)
    model = RiderNet(args.stations, args.history, inward=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    draw = np.random.default_rng(2)
    for step in range(1, args.steps + 1):
        moment = int(draw.integers(args.history, 700))
        said = model(counts[moment - args.history : moment].T)
        loss = F.smooth_l1_loss(said, counts[moment])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 50 == 0:
            wrong = test(model, counts, args.history, range(720, 740, 5))
            print(f"step {step} loss {loss.item():.4f} held out {wrong:.4f}")


if __name__ == "__main__":
    main()
