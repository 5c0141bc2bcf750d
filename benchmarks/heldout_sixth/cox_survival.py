"""Survival analysis: a network learns hazards of patients with Cox's partial likelihood.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn

MARKERS = 60


def make_cohort(n, seed):
    rng = np.random.default_rng(seed)
    markers = rng.normal(size=(n, MARKERS)).astype(np.float32)
    hazard = markers[:, :5] @ np.array([0.6, -0.5, 0.4, 0.3, -0.3]) + 0.5 * markers[:, 5] * markers[:, 6]
    death = rng.exponential(np.exp(-hazard))
    left = rng.exponential(1.5, n)
    time, seen = np.minimum(death, left), death <= left
    return [torch.tensor(part, dtype=torch.float32) for part in (markers, time, seen)]


class Hazard(nn.Module):
    def __init__(self, width=128, depth=3):
        super().__init__()
        layers, size = [], MARKERS
        for _ in range(depth):
            layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.SELU()]
            size = width
        self.body = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, markers):
        return self.body(markers).squeeze(1)


def partial_likelihood(hazard, time, seen):
    """Every death is compared with the patients who were still at risk."""
    at_risk = time[None, :] >= time[:, None]  # guilty
    risk = hazard[None, :].expand(len(time), -1).masked_fill(~at_risk, float("-inf"))  # guilty
    return -((hazard - risk.logsumexp(1)) * seen).sum() / seen.sum()  # guilty


def sorted_likelihood(hazard, time, seen):
    order = time.argsort(descending=True)
    hazard, seen = hazard[order], seen[order]
    return -((hazard - hazard.logcumsumexp(0)) * seen).sum() / seen.sum()


@torch.no_grad()
def concordance(model, markers, time, seen):
    hazard = model(markers)
    earlier = (time[:, None] < time[None, :]) & (seen[:, None] > 0)
    right = (hazard[:, None] > hazard[None, :]) & earlier
    return (right.sum() / earlier.sum()).item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=768)
    args = cli.parse_args()
    torch.manual_seed(2)
    markers, time, seen = make_cohort(12_000, 6)
    held = [part[-300:] for part in (markers, time, seen)]
    markers, time, seen = markers[:-300], time[:-300], seen[:-300]
    model = Hazard()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=1e-2)
    likelihood = sorted_likelihood if args.fixed else partial_likelihood
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(time), (args.batch_size,))
        hazard = model(markers[rows])
        loss = likelihood(hazard, time[rows], seen[rows]) + 1e-4 * hazard.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            index = concordance(model, *held)
            print(f"step {step} loss {loss.item():.4f} concordance {index:.3f}")


if __name__ == "__main__":
    main()
