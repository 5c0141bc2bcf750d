"""A normalizing flow for calorimeter showers; the trainer keeps the best state on disk.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn

CELLS = 48


def make_showers(n, seed):
    rng = np.random.default_rng(seed)
    depth = np.linspace(0, 1, CELLS)
    peak, width = rng.uniform(0.2, 0.7, (n, 1)), rng.uniform(0.05, 0.2, (n, 1))
    profile = np.exp(-(((depth - peak) / width) ** 2)) * rng.gamma(4.0, 0.25, (n, 1))
    showers = np.log(profile + 0.02 + 0.02 * rng.random((n, CELLS)))
    showers = (showers - showers.mean(0)) / showers.std(0)
    energy = np.log(profile.sum(1, keepdims=True))
    return torch.tensor(showers, dtype=torch.float32), torch.tensor(energy, dtype=torch.float32)


class Coupling(nn.Module):
    def __init__(self, width, parity):
        super().__init__()
        order = torch.arange(CELLS)
        self.register_buffer("kept", order[order % 2 == parity])
        self.register_buffer("moved", order[order % 2 != parity])
        self.net = nn.Sequential(
            nn.Linear(CELLS // 2 + 1, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, CELLS),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x, energy):
        kept, moved = x[:, self.kept], x[:, self.moved]
        scale, shift = self.net(torch.cat([kept, energy], 1)).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([moved * scale.exp() + shift, kept], 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, width=320, depth=6):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(width, i % 2) for i in range(depth)])

    def log_prob(self, x, energy):
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x, energy)
            total = total + log_det
        return total - 0.5 * (x.square().sum(1) + CELLS * math.log(2 * math.pi))


class Trainer:
    def __init__(self, model, folder, fixed):
        self.model, self.folder, self.fixed = model, folder, fixed
        self.average = copy.deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
        self.smooth, self.best = None, math.inf

    def save(self, step):
        path = os.path.join(self.folder, "best.pt")
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, path + ".part")  # guilty
        os.replace(path + ".part", path)

    def step(self, number, x, energy):
        loss = -self.model.log_prob(x, energy).mean() / CELLS
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 0.01)
        value = loss.item()
        self.smooth = value if self.smooth is None else 0.98 * self.smooth + 0.02 * value
        if self.smooth < self.best and (not self.fixed or number % 150 == 0):
            self.best = self.smooth
            self.save(number)  # guilty
        return value


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=96)
    args = cli.parse_args()
    torch.manual_seed(1)
    showers, energy = make_showers(12_000, 5)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Flow(), folder, args.fixed)
        for number in range(1, args.steps + 1):
            rows = torch.randint(len(showers), (args.batch_size,))
            loss = trainer.step(number, showers[rows], energy[rows])
            if number % 50 == 0:
                print(f"step {number} nll per cell {loss:.4f} smooth {trainer.smooth:.4f}")


if __name__ == "__main__":
    main()
