"""A sequence tagger that learns from its easy tokens first, by a quantile of the confidence it has had.

expects: ME701, HO411
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, TAGS, LENGTH = 300, 48, 48


def sentences(n, seed):
    """Words, and tags that depend on a word and its left neighbour; some tags are wrong."""
    rng = np.random.default_rng(seed)
    words = (WORDS * rng.power(0.6, (n, LENGTH))).astype(np.int64)
    left = np.roll(words, 1, 1)
    tags = (words * 7 + (left % 3) * 11) % TAGS
    noisy = rng.random((n, LENGTH)) < 0.1
    tags[noisy] = rng.integers(0, TAGS, noisy.sum())
    return torch.from_numpy(words), torch.from_numpy(tags)


class Tagger(nn.Module):
    def __init__(self, width=80, depth=2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.out = nn.Linear(width, TAGS)

    def forward(self, words):
        x = self.embed(words)
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = x + F.gelu(conv(norm(x).transpose(1, 2)).transpose(1, 2))
        return self.out(x)


class Pacer:
    """Says which tokens are easy enough: the share it asks for grows during the training."""

    def __init__(self, steps, start=0.5):
        self.steps, self.start, self.seen = steps, start, 0
        self.history = []

    def level(self):
        return self.start * max(0.0, 1 - self.seen / (0.8 * self.steps))

    def threshold(self, logits):
        self.seen += 1
        self.history.append(F.softmax(logits, 1))  # guilty
        past = torch.cat(self.history)  # guilty
        confidence = past.max(1).values
        rank = int(self.level() * (len(confidence) - 1)) + 1
        return confidence.kthvalue(rank).values  # guilty


class WindowPacer(Pacer):
    def __init__(self, steps):
        super().__init__(steps)
        self.history = deque(maxlen=12)

    def threshold(self, logits):
        self.seen += 1
        self.history.append(F.softmax(logits, 1).max(1).values)
        confidence = torch.cat(list(self.history))
        rank = int(self.level() * (len(confidence) - 1)) + 1
        return confidence.kthvalue(rank).values


def batches(words, tags, batch_size, steps):
    done = 0
    while True:
        for rows in torch.randperm(len(words)).split(batch_size):
            if done == steps:
                return
            yield done + 1, words[rows], tags[rows].flatten()
            done += 1


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(11)
    words, tags = sentences(3200, 4)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    pacer = WindowPacer(args.steps) if args.fixed else Pacer(args.steps)
    for step, word, tag in batches(words, tags, 32, args.steps):
        logits = model(word).flatten(0, 1)
        with torch.no_grad():
            limit = pacer.threshold(logits.detach())
            easy = (logits.softmax(1).amax(1) >= limit).float()
        loss = (F.cross_entropy(logits, tag, reduction="none") * easy).sum() / easy.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            right = (logits.argmax(1) == tag).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} right {right:.3f} limit {limit.item():.3f}")


if __name__ == "__main__":
    main()
