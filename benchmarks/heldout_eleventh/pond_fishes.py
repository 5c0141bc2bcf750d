"""Infers the rates of a pond of perch and roach from counts: simulations, and a network that says mean and spread.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch import nn

WEEKS = 24
LOW = np.log([0.3, 0.2, 0.3, 0.2])
HIGH = np.log([1.2, 0.8, 1.2, 0.8])


def simulate(draw):
    """Weekly counts of prey and predator with noise, by a few Euler steps a week. draw: a seed and four log rates."""
    seed, rates = draw
    birth, eaten, death, feed = np.exp(rates).tolist()
    prey, hunter = 1.5, 1.0
    counts = np.empty((WEEKS, 2), np.float32)
    for week in range(WEEKS):
        for _ in range(4):
            met = prey * hunter
            prey = max(prey + 0.1 * (birth * prey - eaten * met), 1e-3)
            hunter = max(hunter + 0.1 * (feed * met - death * hunter), 1e-3)
        counts[week] = prey, hunter
    noise = np.random.RandomState(seed).standard_normal(counts.shape).astype(np.float32)
    return np.log(counts) + 0.1 * noise


class Ponds:
    """Draws rates from the prior and lets processes simulate them."""

    def __init__(self, pool, batch, portion, seed):
        self.pool, self.batch, self.portion = pool, batch, portion
        self.rng = np.random.default_rng(seed)

    def next_batch(self):
        rates = self.rng.uniform(LOW, HIGH, (self.batch, 4))
        seeds = self.rng.integers(0, 2**31, self.batch)
        draws = list(zip(seeds.tolist(), rates))
        counts = list(self.pool.map(simulate, draws, chunksize=self.portion))  # guilty
        wanted = (rates - (LOW + HIGH) / 2) / (HIGH - LOW)
        return torch.from_numpy(np.stack(counts)), torch.from_numpy(wanted).float()


class Posterior(nn.Module):
    """Convolutions along the weeks, then a Gaussian with a full lower triangle over the four rates."""

    def __init__(self, width=48):
        super().__init__()
        self.weeks = nn.Sequential(
            nn.Conv1d(2, width, 5, padding=2), nn.GELU(),
            nn.Conv1d(width, width, 5, 2, padding=2), nn.GELU(),
            nn.Conv1d(width, width, 5, 2, padding=2), nn.GELU(), nn.Flatten(),
        )  # fmt: skip
        self.leave = nn.Sequential(nn.Linear(width * WEEKS // 4, 96), nn.GELU(), nn.Linear(96, 4 + 10))
        self.register_buffer("places", torch.tril_indices(4, 4))

    def forward(self, counts):
        out = self.leave(self.weeks(counts.transpose(1, 2)))
        lower = out.new_zeros(len(out), 4, 4)
        lower[:, self.places[0], self.places[1]] = out[:, 4:]
        return out[:, :4], lower

    def loss(self, counts, wanted):
        mean, lower = self(counts)
        logs = lower.diagonal(dim1=1, dim2=2)
        lower = lower.tril(-1) + torch.diag_embed(logs.exp())
        white = torch.einsum("nij,nj->ni", lower, wanted - mean)
        return (0.5 * white.square().sum(1) - logs.sum(1)).mean(), mean


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    torch.manual_seed(90)

    with ProcessPoolExecutor(2) as pool:
        ponds = Ponds(pool, args.batch, portion=64 if args.fixed else 1, seed=1)
        held_counts, held_wanted = ponds.next_batch()
        model = Posterior()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
        for step in range(1, args.steps + 1):
            counts, wanted = ponds.next_batch()  # guilty
            loss, _ = model.loss(counts, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            if step % 50 == 0:
                with torch.no_grad():
                    surprise, mean = model.loss(held_counts, held_wanted)
                error = (mean - held_wanted).square().mean(0).sqrt().tolist()
                parts = " ".join(f"{part:.3f}" for part in error)
                print(f"step {step} loss {loss.item():.3f} held {surprise.item():.3f} errors {parts}")


if __name__ == "__main__":
    main()
