"""Forecasts the demand of a district heating network for half a day from three days of demand and weather.

expects: CA601, CA602
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class DataConfig:
    hours: int = 5000
    past: int = 72
    ahead: int = 12
    batch_size: int = 32
    eval_batch_size: int = 1  # guilty


@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    width: int = 96
    rate: float = 2e-3
    patience: int = 50


class Network(Dataset):
    def __init__(self, config, split, seed=12):
        rng = np.random.default_rng(seed)
        t = np.arange(config.hours)
        daily = np.exp(np.cos((t - 7) / 12 * np.pi)) + 0.6 * np.exp(np.cos((t - 19) / 12 * np.pi))
        cold = np.sin(t / config.hours * np.pi) + 0.2 * np.convolve(
            rng.normal(size=config.hours), np.exp(-np.arange(96) / 30), "same"
        )
        wind = 0.3 * np.convolve(rng.normal(size=config.hours), np.exp(-np.arange(48) / 12), "same")
        demand = 0.4 * daily + np.roll(cold, 3) + 0.1 * np.roll(wind, 1) + 0.05 * rng.normal(size=config.hours)
        series = np.stack([demand, cold, wind], 1)
        edge = int(0.9 * config.hours)
        series = series[:edge] if split == "train" else series[edge:]
        self.series = torch.tensor(series, dtype=torch.float32)
        self.past, self.ahead = config.past, config.ahead

    def __len__(self):
        return len(self.series) - self.past - self.ahead

    def __getitem__(self, i):
        cut = i + self.past
        return self.series[i:cut], self.series[cut : cut + self.ahead, 0]


class Forecaster(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encode = nn.GRU(3, config.width, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width), nn.ReLU(), nn.Linear(config.width, config.data.ahead)
        )

    def forward(self, past):
        hidden, _ = self.encode(past)
        return past[:, -1:, 0] + self.head(hidden[:, -1])


class Experiment:
    def __init__(self, config, fixed):
        self.config = config
        data = config.data
        if fixed:
            data.eval_batch_size = data.batch_size
        self.train_loader = DataLoader(Network(data, "train"), data.batch_size, shuffle=True, drop_last=True)
        self.eval_loader = DataLoader(Network(data, "eval"), data.eval_batch_size)  # guilty
        self.model = Forecaster(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.rate)
        self.best, self.since, self.step = float("inf"), 0, 0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        wrong = []
        for past, demand in self.eval_loader:  # guilty
            wrong.append((self.model(past) - demand).abs().mean(1))  # guilty
        self.model.train()
        return torch.cat(wrong).mean().item()

    def epoch(self, limit):
        total, n = 0.0, 0
        for past, demand in self.train_loader:
            loss = F.huber_loss(self.model(past), demand, delta=0.3)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total, n = total + loss.item(), n + 1
            self.step += 1
            if self.step == limit or n == 60:
                break
        return total / n

    def run(self, steps):
        while self.step < steps and self.since < self.config.patience:
            loss = self.epoch(steps)
            error = self.evaluate()  # guilty
            self.since = 0 if error < self.best else self.since + 1
            self.best = min(self.best, error)
            print(f"step {self.step} loss {loss:.4f} error {error:.4f} best {self.best:.4f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=360)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(4)
    Experiment(Config(), args.fixed).run(args.steps)
