"""Skip-gram with negative sampling; frequent words are drawn less often.

expects: IN111
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB, DIM, NEG = 4000, 128, 10


def corpus(n, rng):
    topic = np.repeat(rng.integers(0, 20, n // 50), 50)
    word = (rng.zipf(1.3, n) - 1) % (VOCAB // 20)
    return topic * (VOCAB // 20) + word


class Pairs(Dataset):
    def __init__(self, tokens, window=4):
        n = len(tokens)
        left, right = [], []
        for off in range(1, window + 1):
            left += [tokens[: n - off], tokens[off:]]
            right += [tokens[off:], tokens[: n - off]]
        self.center = torch.from_numpy(np.concatenate(left))
        self.context = torch.from_numpy(np.concatenate(right))

    def __len__(self):
        return len(self.center)

    def __getitem__(self, i):
        return self.center[i], self.context[i]

    def __getitems__(self, idx):
        idx = torch.as_tensor(idx)
        return self.center[idx], self.context[idx]


class RareFirst(Sampler):
    """Batches of pairs, a pair drawn by the inverse root of its word's frequency."""

    def __init__(self, center, batch, batches, whole):
        freq = np.bincount(center.numpy(), minlength=VOCAB)[center.numpy()]
        p = 1 / np.sqrt(freq)
        self.p, self.batch, self.batches, self.whole = p / p.sum(), batch, batches, whole

    def __len__(self):
        return self.batches

    def __iter__(self):
        rng = np.random.default_rng(5)
        n = len(self.p)
        if self.whole:
            yield from rng.choice(n, (self.batches, self.batch), p=self.p).tolist()
            return
        for _ in range(self.batches):
            yield rng.choice(n, self.batch, p=self.p).tolist()  # guilty


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.v = nn.Embedding(VOCAB, DIM), nn.Embedding(VOCAB, DIM)
        nn.init.uniform_(self.u.weight, -0.5 / DIM, 0.5 / DIM)
        nn.init.zeros_(self.v.weight)

    def forward(self, center, context, negative):
        u = self.u(center)
        pos = (u * self.v(context)).sum(-1)
        neg = torch.bmm(self.v(negative), u.unsqueeze(-1)).squeeze(-1)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(-1)).mean()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--batch", type=int, default=1024)
    a = ap.parse_args()
    torch.manual_seed(0)
    data = Pairs(corpus(250_000, np.random.default_rng(0)))
    sampler = RareFirst(data.center, a.batch, a.steps, a.fixed)  # guilty
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=lambda pair: pair)
    model = SkipGram()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for i, (center, context) in enumerate(loader):  # guilty
        negative = torch.randint(VOCAB, (len(center), NEG))
        loss = model(center, context, negative)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(i, f"{loss.item():.3f}")
