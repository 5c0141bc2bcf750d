"""Protein-like token sequences, and the masking of some of their tokens."""

# mypy: ignore-errors
import torch
from torch.utils.data import Dataset

MASK, FIRST = 1, 2


class Proteins(Dataset):
    """Sequences of 3-mers from a hidden Markov chain with a few strong motifs."""

    def __init__(self, n, length, vocabulary, seed):
        generator = torch.Generator().manual_seed(seed)
        motifs = torch.randint(FIRST, vocabulary, (60, 8), generator=generator)
        picks = torch.randint(0, 60, (n, length // 8), generator=generator)
        self.tokens = motifs[picks].flatten(1)
        noise = torch.rand(self.tokens.shape, generator=generator) < 0.1
        self.tokens[noise] = torch.randint(FIRST, vocabulary, (int(noise.sum()),), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


class Masking:
    """Hides a share of the tokens: labels are -100 wherever nothing is to be predicted."""

    def __init__(self, share, seed):
        self.share, self.generator = share, torch.Generator().manual_seed(seed)

    def __call__(self, samples):
        tokens = torch.stack(samples)
        hidden = torch.rand(tokens.shape, generator=self.generator) < self.share
        labels = tokens.masked_fill(~hidden, -100)
        return tokens.masked_fill(hidden, MASK), labels
