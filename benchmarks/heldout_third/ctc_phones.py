"""Phone recognition with CTC: utterances in buckets of like length, packed for a bidirectional GRU.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

PHONES, FEATS = 20, 24


class Utterances(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        code = torch.randn(PHONES + 1, FEATS, generator=g)
        self.items = []
        for _ in range(n):
            phones = torch.randint(1, PHONES + 1, (int(torch.randint(4, 20, (), generator=g)),), generator=g)
            frames = code[phones.repeat_interleave(3)]
            self.items.append((frames + 0.5 * torch.randn(frames.shape, generator=g), phones))
        self.lengths = [len(x) for x, _ in self.items]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Buckets(Sampler):
    """Batches of about the same length, in random order."""

    def __init__(self, lengths, batch, seed=0):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch] for i in range(0, len(order) - batch + 1, batch)]
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        yield from self.rng.sample(self.batches, len(self.batches))


def collate(items):
    items = sorted(items, key=lambda item: -len(item[0]))
    lengths = torch.tensor([len(x) for x, _ in items])
    sizes = torch.tensor([len(p) for _, p in items])
    return pad_sequence([x for x, _ in items], batch_first=True), lengths, torch.cat([p for _, p in items]), sizes


class Recogniser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(FEATS, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, PHONES + 1)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1).transpose(0, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Utterances(480)
    loader = DataLoader(data, batch_sampler=Buckets(data.lengths, 12), collate_fn=collate)
    model, ctc = Recogniser(), nn.CTCLoss(zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    while step < args.steps:
        total = 0.0
        for x, lengths, phones, sizes in loader:
            loss = ctc(model(x, lengths), phones, lengths, sizes)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
            step += 1
            if step == args.steps:
                break
        print(f"step {step}: mean loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
