"""Forecast of electricity load: a patch transformer over many meters, with early stopping on a validation split.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
import dataclasses
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    context: int = 168
    horizon: int = 24
    patch: int = 12
    dim: int = 64
    layers: int = 2
    batch_size: int = 32
    lr: float = 1e-3
    steps: int = 200
    eval_interval: int = 4
    patience: int = 10_000


class Windows(Dataset):
    def __init__(self, series, cfg, stride):
        self.series, self.cfg = series, cfg
        span = cfg.context + cfg.horizon
        self.index = [(m, s) for m in range(len(series)) for s in range(0, series.shape[1] - span, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        m, s = self.index[i]
        mid = s + self.cfg.context
        return self.series[m, s:mid], self.series[m, mid : mid + self.cfg.horizon]


def meters(n, hours):
    rng = np.random.default_rng(8)
    t = np.arange(hours)
    phase = rng.uniform(0, 6, (n, 1))
    load = np.sin(2 * np.pi * t / 24 + phase) + 0.4 * np.sin(2 * np.pi * t / 168 + phase)
    return torch.tensor(load + 0.1 * rng.normal(size=load.shape), dtype=torch.float32)


class PatchTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        n = cfg.context // cfg.patch
        self.embed = nn.Linear(cfg.patch, cfg.dim)
        self.pos = nn.Parameter(torch.randn(n, cfg.dim) / math.sqrt(cfg.dim))
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 4 * cfg.dim, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Linear(n * cfg.dim, cfg.horizon)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        z = ((x - mean) / std).unflatten(1, (-1, self.cfg.patch))
        return self.head(self.body(self.embed(z) + self.pos).flatten(1)) * std + mean


@torch.no_grad()
def validate(model, loader):
    model.eval()
    error = count = 0.0
    for past, future in loader:  # guilty
        error += (model(past) - future).abs().sum().item()  # guilty
        count += future.numel()
    model.train()
    return error / count


def fit(cfg):
    data = meters(40, 1200)
    train = DataLoader(Windows(data[:, :900], cfg, 6), cfg.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(Windows(data[:, 900:], cfg, 12), 64)
    model = PatchTransformer(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), cfg.lr)
    best, bad, step = float("inf"), 0, 0
    while True:
        for past, future in train:
            loss = nn.functional.huber_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % cfg.eval_interval == 0:  # guilty
                mae = validate(model, val)  # guilty
                bad = 0 if mae < best else bad + 1
                best = min(best, mae)
                if step % 40 == 0:
                    print(f"step {step} train {loss.item():.4f} val {mae:.4f} best {best:.4f}")
            if step >= cfg.steps or bad > cfg.patience:
                return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    fit(Config(steps=args.steps, eval_interval=40 if args.fixed else 4))
