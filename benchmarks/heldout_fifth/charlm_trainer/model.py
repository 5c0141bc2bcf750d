# mypy: ignore-errors
"""A character model of gated recurrent layers, and text of a small random grammar."""

import random

import torch
import torch.nn as nn


def make_text(size, seed):
    rng = random.Random(seed)
    nouns = ["".join(rng.choices("aeiou bcdfglmnprst", k=rng.randint(3, 7))) for _ in range(300)]
    verbs = ["".join(rng.choices("aeioubcdfglmnprst", k=rng.randint(3, 6))) + "s" for _ in range(120)]
    parts, length = [], 0
    while length < size:
        parts.append(f"the {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)}. ")
        length += len(parts[-1])
    return "".join(parts)[:size]


class Corpus:
    def __init__(self, size, seed=0):
        text = make_text(size, seed)
        self.alphabet = sorted(set(text))
        index = {c: i for i, c in enumerate(self.alphabet)}
        self.codes = torch.tensor([index[c] for c in text])
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, size, length):
        at = torch.randint(len(self.codes) - length - 1, (size, 1), generator=self.gen)
        cut = self.codes[at + torch.arange(length + 1)]
        return cut[:, :-1], cut[:, 1:]


class CharLM(nn.Module):
    def __init__(self, alphabet, width):
        super().__init__()
        self.embed = nn.Embedding(alphabet, 64)
        self.rnn = nn.GRU(64, width, num_layers=2, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, alphabet))

    def forward(self, codes):
        return self.out(self.rnn(self.embed(codes))[0])
