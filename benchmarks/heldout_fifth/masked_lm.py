"""Masked language modelling on a synthetic grammar, with a small pre-norm encoder and gradient accumulation.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Setup:
    vocab: int = 6000
    length: int = 48
    dim: int = 96
    depth: int = 2
    heads: int = 4
    batch: int = 6
    accumulate: int = 2
    mask_rate: float = 0.15


class Grammar:
    """Sentences in which the next word depends on the last one and on a topic."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.follow = self.rng.integers(2, cfg.vocab, (cfg.vocab, 4))

    def batch(self):
        cfg, rng = self.cfg, self.rng
        words = np.empty((cfg.batch, cfg.length), np.int64)
        words[:, 0] = rng.integers(2, cfg.vocab, cfg.batch)
        for i in range(1, cfg.length):
            words[:, i] = self.follow[words[:, i - 1], rng.integers(0, 4, cfg.batch)]
        hidden = rng.random(words.shape) < cfg.mask_rate
        hidden[:, 0] = True
        return torch.from_numpy(words), torch.from_numpy(hidden)


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Parameter(torch.zeros(cfg.length, cfg.dim))
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 4 * cfg.dim, 0.1, "gelu", True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)

    def forward(self, words):
        return self.layers(self.tok(words) + self.pos)


class MaskedLM(nn.Module):
    def __init__(self, cfg, narrow):
        super().__init__()
        self.encoder = Encoder(cfg)
        self.transform = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.GELU(), nn.LayerNorm(cfg.dim))
        self.decoder = nn.Linear(cfg.dim, cfg.vocab)
        self.narrow = narrow

    def forward(self, words, hidden):
        h = self.encoder(words.masked_fill(hidden, 1))
        if self.narrow:
            return F.cross_entropy(self.decoder(self.transform(h[hidden])), words[hidden])
        scores = self.decoder(self.transform(h))  # guilty
        labels = words.masked_fill(~hidden, -100)
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=210)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    cfg = Setup()
    text = Grammar(cfg, seed=6)
    model = MaskedLM(cfg, narrow=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
    for step in range(1, args.steps + 1):
        total = 0.0
        for _ in range(cfg.accumulate):
            words, hidden = text.batch()
            loss = model(words, hidden) / cfg.accumulate  # guilty
            loss.backward()  # guilty
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        if step % 30 == 0:
            print(f"step {step} loss {total:.3f}")


if __name__ == "__main__":
    main()
