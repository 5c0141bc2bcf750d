"""Pretrains a small encoder on system logs: some of a line's tokens are hidden and have to be guessed.

expects: CO519
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, CLS, MASK, FIRST = 0, 1, 2, 3


@dataclass
class Config:
    vocabulary: int = 5000
    length: int = 64
    width: int = 128
    depth: int = 3
    heads: int = 4
    hide: float = 0.15
    batch: int = 24
    rate: float = 4e-4


class LogLines(Dataset):
    """Every line follows one of 300 templates; a few of its places hold a number or a host name."""

    def __init__(self, n, config, seed):
        rng = np.random.default_rng(seed)
        templates = rng.integers(FIRST, config.vocabulary // 2, (300, config.length))
        lines = templates[rng.integers(0, 300, n)]
        variable = rng.random(lines.shape) < 0.2
        lines = np.where(variable, rng.integers(config.vocabulary // 2, config.vocabulary, lines.shape), lines)
        lines[:, 0] = CLS
        self.lines = torch.from_numpy(lines)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return self.lines[i]


class Masker:
    def __init__(self, config):
        self.hide, self.vocabulary = config.hide, config.vocabulary

    def __call__(self, lines):
        tokens = torch.stack(lines)
        hidden = (torch.rand(tokens.shape) < self.hide) & (tokens >= FIRST)
        labels = torch.where(hidden, tokens, -100)
        dice = torch.rand(tokens.shape)
        tokens = torch.where(hidden & (dice < 0.8), MASK, tokens)
        noise = torch.randint(FIRST, self.vocabulary, tokens.shape)
        return torch.where(hidden & (dice > 0.9), noise, tokens), labels


class LogEncoder(nn.Module):
    def __init__(self, config, fixed):
        super().__init__()
        self.fixed = fixed
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.place = nn.Parameter(0.02 * torch.randn(config.length, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 2 * config.width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.body = nn.TransformerEncoder(layer, config.depth)
        self.transform = nn.Sequential(nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width))
        self.decode = nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens, labels):
        x = self.body(self.embed(tokens) + self.place)
        if self.fixed:
            chosen = labels != -100
            x, labels = x[chosen], labels[chosen]
        logits = self.decode(self.transform(x))  # guilty
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100)  # guilty


def train(args, config):
    lines = LogLines(6000, config, 8)
    loader = DataLoader(lines, config.batch, shuffle=True, drop_last=True, collate_fn=Masker(config))
    model = LogEncoder(config, args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), config.rate, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 40)
    step = 0
    while step < args.steps:
        for tokens, labels in loader:
            loss = model(tokens, labels)  # guilty
            optimizer.zero_grad()
            loss.backward()  # guilty
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=80)
    cli.add_argument("--fixed", action="store_true")
    torch.manual_seed(21)
    train(cli.parse_args(), Config())
