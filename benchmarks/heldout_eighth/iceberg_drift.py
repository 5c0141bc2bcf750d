"""Predicts the drift of icebergs online: a recurrent model with attention over remembered tracks.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

DAYS, FORCES = 24, 5


class Ocean:
    """Streams tracks of icebergs under wind and current that change slowly."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.season = 0.0

    def tracks(self, count):
        self.season += 0.01
        forces = torch.randn(count, DAYS + 1, FORCES, generator=self.g).cumsum(1) * 0.15
        mass = 0.5 + torch.rand(count, 1, generator=self.g)
        speed, place, places = torch.zeros(count, 2), torch.zeros(count, 2), []
        turn = torch.tensor(self.season).sin() * 0.3
        for day in range(DAYS + 1):
            push = forces[:, day, :2] + 0.4 * forces[:, day, 2:4]
            swirl = torch.stack([-speed[:, 1], speed[:, 0]], 1) * turn
            speed = 0.9 * speed + 0.1 * push / mass + 0.1 * swirl
            place = place + speed
            places.append(place)
        places = torch.stack(places, 1)
        return torch.cat([forces, places], 2)[:, :-1], places[:, -1] - places[:, -2]


class Remembered:
    """The latest tracks, oldest first: what the model may look up."""

    def __init__(self, size, width):
        self.tracks = torch.zeros(size, DAYS, FORCES + 2)
        self.drifts = torch.zeros(size, 2)
        self.keys = torch.randn(size, width)
        self.size = size

    def add(self, tracks, drifts, keys):
        self.tracks = torch.cat([self.tracks, tracks])[-self.size :].clone()  # guilty
        self.drifts = torch.cat([self.drifts, drifts])[-self.size :].clone()  # guilty
        self.keys = torch.cat([self.keys, keys])[-self.size :].clone()  # guilty

    def sample(self, count):
        rows = torch.randint(self.size, (count,))
        return self.tracks[rows], self.drifts[rows], self.keys[rows]


class Ring(Remembered):
    def __init__(self, size, width):
        super().__init__(size, width)
        self.at = 0

    def add(self, tracks, drifts, keys):
        rows = (self.at + torch.arange(len(tracks))) % self.size
        self.tracks[rows], self.drifts[rows], self.keys[rows] = tracks, drifts, keys
        self.at = (self.at + len(tracks)) % self.size


class Drift(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.GRU(FORCES + 2, width, batch_first=True)
        self.query = nn.Linear(width, width)
        self.out = nn.Sequential(nn.Linear(width + 2, width), nn.GELU(), nn.Linear(width, 2))

    def encode(self, tracks):
        return self.encoder(tracks)[0][:, -1]

    def forward(self, tracks, keys, drifts):
        code = self.encode(tracks)
        weight = (self.query(code) @ keys.T / keys.shape[1] ** 0.5).softmax(1)
        return self.out(torch.cat([code, weight @ drifts], 1)), code


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=32)
    cli.add_argument("--remember", type=int, default=40_000)
    args = cli.parse_args()
    torch.manual_seed(41)

    ocean, model = Ocean(6), Drift()
    memory = (Ring if args.fixed else Remembered)(args.remember, 64)
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    average = None
    for step in range(1, args.steps + 1):
        fresh, drift = ocean.tracks(args.batch_size)
        old, old_drift, keys = memory.sample(2 * args.batch_size)
        predicted, codes = model(torch.cat([fresh, old]), keys, old_drift)
        weight = torch.cat([torch.ones(len(fresh)), 0.3 * torch.ones(len(old))])
        errors = F.smooth_l1_loss(predicted, torch.cat([drift, old_drift]), reduction="none").sum(1)
        loss = (weight * errors).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        memory.add(fresh, drift, codes[: len(fresh)].detach())  # guilty
        fresh_error = errors[: len(fresh)].detach().mean()
        average = fresh_error if average is None else 0.95 * average + 0.05 * fresh_error
        if step % 40 == 0:
            print(f"step {step} error on fresh tracks {average.item():.4f}")


if __name__ == "__main__":
    main()
