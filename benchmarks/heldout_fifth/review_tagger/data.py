# mypy: ignore-errors
"""Synthetic reviews: words with a sentiment of their own, and negations that turn it."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

NEGATIONS = 20


class Reviews(Dataset):
    def __init__(self, count, vocab, max_len, seed):
        rng = np.random.default_rng(seed)
        mood = rng.normal(0, 1, vocab)
        lengths = np.clip(rng.gamma(4.0, 7.0, count), 5, max_len).astype(int)
        self.rows = []
        for n in lengths:
            words = rng.integers(1, vocab, n)
            sign = np.where(np.roll(words, 1) < NEGATIONS, -1, 1)
            tags = np.digitize(mood[words] * sign, [-0.6, 0.6])
            self.rows.append((torch.from_numpy(words), torch.from_numpy(tags)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class PadTo:
    """Pads words with 0 and tags with -100."""

    def __init__(self, length):
        self.length = length

    def __call__(self, rows):
        words = torch.zeros(len(rows), self.length, dtype=torch.long)  # guilty
        tags = torch.full((len(rows), self.length), -100)
        for i, (w, t) in enumerate(rows):
            words[i, : len(w)] = w
            tags[i, : len(t)] = t
        return words, tags


def pad_longest(rows):
    words, tags = zip(*rows, strict=True)
    return pad_sequence(words, True, 0), pad_sequence(tags, True, -100)
