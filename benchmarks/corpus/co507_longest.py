"""Sentences of very different lengths, every one filled up to the longest of all.

expects: CO507
needs: either
"""
# mypy: ignore-errors

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Sentences(Dataset):
    def __init__(self, count, longest):
        source = random.Random(0)
        lengths = [min(longest, 8 + int(source.expovariate(1 / (longest / 4)))) for _ in range(count)]
        self.rows = [torch.tensor([source.randrange(1, 2000) for _ in range(length)]) for length in lengths]
        self.rows.sort(key=lambda row: source.random())

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Chunks:
    """Batches of sentences that are about equally long, in a random order."""

    def __init__(self, rows, size):
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]
        random.Random(1).shuffle(self.batches)

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def to_longest(longest):
    def collate(rows):
        out = torch.full((len(rows), longest), PAD)
        for i, row in enumerate(rows):
            out[i, : len(row)] = row
        return out

    return collate


def to_longest_of_batch(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class Tagger(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embedding = nn.Embedding(2000, width, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 12)

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids), src_key_padding_mask=ids == PAD))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    size, longest, width, depth = (64, 1024, 768, 6) if on_gpu else (16, 192, 64, 2)
    data = Sentences(size * args.steps, longest)
    if args.fixed:
        loader = DataLoader(
            data, batch_sampler=Chunks(data.rows, size), collate_fn=to_longest_of_batch, pin_memory=on_gpu
        )
    else:
        loader = DataLoader(data, size, shuffle=True, collate_fn=to_longest(longest), pin_memory=on_gpu)  # guilty
    model = Tagger(width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=on_gpu)
    for ids in loader:
        ids = ids.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            out = model(ids)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), (ids % 12).flatten(), reduction="none")
        real = (ids != PAD).flatten()
        loss = (loss * real).sum() / real.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
