"""Two-tower retrieval for podcasts: a listener's recent episodes against the one that was played next.

expects: CO517
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

EPISODES, SHOWS, HISTORY, WIDTH = 120_000, 4_000, 12, 32


def make_plays(n, seed):
    """Listeners stay near a few shows; popularity of the shows falls like a power law."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, SHOWS + 1) ** 0.8
    shows = rng.choice(SHOWS, (n, 3), p=weight / weight.sum())
    picked = np.take_along_axis(shows, rng.integers(0, 3, (n, HISTORY + 1)), 1)
    episodes = picked * (EPISODES // SHOWS) + rng.integers(0, EPISODES // SHOWS, picked.shape)
    hours = rng.uniform(0, 24, n)
    clock = np.stack([np.sin(hours * np.pi / 12), np.cos(hours * np.pi / 12)], 1)
    return torch.from_numpy(episodes), torch.tensor(clock, dtype=torch.float32)


class Tower(nn.Module):
    def __init__(self, n_in, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, width),
            nn.ReLU(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, WIDTH),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Retrieval(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.episode = nn.Embedding(EPISODES, WIDTH, sparse=sparse)  # guilty
        self.show = nn.Embedding(SHOWS, WIDTH)
        nn.init.normal_(self.episode.weight, std=0.05)
        nn.init.normal_(self.show.weight, std=0.05)
        self.listener, self.candidate = Tower(2 * WIDTH + 2), Tower(2 * WIDTH)
        self.scale = nn.Parameter(torch.tensor(2.3))

    def embed(self, ids):
        show = ids // (EPISODES // SHOWS)
        return torch.cat([self.episode(ids), self.show(show)], -1)

    def forward(self, history, clock, target):
        query = self.listener(torch.cat([self.embed(history).mean(1), clock], 1))
        key = self.candidate(self.embed(target))
        return self.scale.exp() * query @ key.T


def make_optimizers(model, sparse):
    if not sparse:
        return [torch.optim.Adam(model.parameters(), 1e-3)]
    rest = [p for name, p in model.named_parameters() if name != "episode.weight"]
    return [torch.optim.Adam(rest, 1e-3), torch.optim.SparseAdam([model.episode.weight], 1e-3)]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=384)
    args = cli.parse_args()
    torch.manual_seed(11)
    plays, clock = make_plays(40_000, 5)
    model = Retrieval(sparse=args.fixed)
    optimizers = make_optimizers(model, args.fixed)
    step, running = 0, 0.0
    while step < args.steps:
        order = torch.randperm(len(plays))
        for rows in order.split(args.batch_size):
            if step == args.steps or len(rows) < args.batch_size:
                break
            ids = plays[rows]
            scores = model(ids[:, :-1], clock[rows], ids[:, -1])
            loss = F.cross_entropy(scores, torch.arange(len(rows)), label_smoothing=0.05)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()  # guilty
            for optimizer in optimizers:
                optimizer.step()  # guilty
            step += 1
            running += loss.item()
            if step % 50 == 0:
                print(f"step {step} loss {running / 50:.4f}")
                running = 0.0


if __name__ == "__main__":
    main()
