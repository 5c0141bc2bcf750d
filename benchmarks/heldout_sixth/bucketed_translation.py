"""Sequence-to-sequence training on sentence pairs of very different lengths, which are sorted into buckets first.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

PAD, START, WORDS = 0, 1, 1200


class SentencePairs:
    """The other language has the same words in reverse, under another number."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        lengths = np.clip(rng.lognormal(2.5, 0.6, n).astype(int), 3, 60)
        dictionary = rng.permutation(np.arange(2, WORDS))
        common = [np.minimum(rng.geometric(0.01, length) - 1, WORDS - 3) for length in lengths]
        self.source = [torch.from_numpy(words + 2) for words in common]
        self.target = [torch.from_numpy(dictionary[words][::-1].copy()) for words in common]


class Buckets(IterableDataset):
    """Batches of about `tokens` tokens out of pools of sentences that are sorted by length."""

    def __init__(self, pairs, tokens, pool, seed):
        self.pairs, self.tokens, self.pool, self.seed = pairs, tokens, pool, seed

    def batches(self, rows):
        batch = []
        for row in rows:
            if batch and (len(batch) + 1) * len(self.pairs.source[row]) > self.tokens:
                yield batch
                batch = []
            batch.append(row)
        yield batch

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        while True:
            order = rng.permutation(len(self.pairs.source))
            for begin in range(0, len(order), self.pool):
                rows = sorted(order[begin : begin + self.pool], key=lambda row: len(self.pairs.source[row]))
                made = list(self.batches(rows))
                rng.shuffle(made)
                for batch in made:
                    yield self.collate(batch)

    def collate(self, rows):
        source = nn.utils.rnn.pad_sequence([self.pairs.source[row] for row in rows], True, PAD)
        target = nn.utils.rnn.pad_sequence([self.pairs.target[row] for row in rows], True, PAD)
        return source, target


class Translator(nn.Module):
    def __init__(self, width=96, depth=2):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width, PAD), nn.Embedding(WORDS, width, PAD)
        self.place = nn.Embedding(64, width)
        self.transformer = nn.Transformer(
            width, 4, depth, depth, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.out = nn.Linear(width, WORDS)

    def embed(self, table, words):
        return table(words) + self.place(torch.arange(words.shape[1]))

    def forward(self, source, target):
        shifted = F.pad(target, (1, 0), value=START)[:, :-1]
        blank = source == PAD
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        hidden = self.transformer(
            self.embed(self.source, source),
            self.embed(self.target, shifted),
            tgt_mask=causal,
            src_key_padding_mask=blank,
            memory_key_padding_mask=blank,
        )
        return self.out(hidden)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    hits = total = 0
    for source, target in batches:
        real = target != PAD
        hits += ((model(source, target).argmax(2) == target) & real).sum().item()
        total += real.sum().item()
    model.train()
    return hits / total


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(70)
    stream = iter(DataLoader(Buckets(SentencePairs(5000, 71), 400, 600, 72), batch_size=None))
    held = iter(DataLoader(Buckets(SentencePairs(200, 73), 400, 200, 74), batch_size=None))
    held = [next(held) for _ in range(4)]
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    words, began = 0, time.perf_counter()
    for step in range(1, args.steps + 1):
        source, target = next(stream)
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        words += target.numel()
        if step % 60 == 0:
            rate = words / (time.perf_counter() - began)
            print(f"step {step} loss {loss.item():.4f} accuracy {evaluate(model, held):.3f} words/s {rate:.0f}")


if __name__ == "__main__":
    main()
