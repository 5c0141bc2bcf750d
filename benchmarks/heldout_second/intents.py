"""Intents of customer messages, from one-liners to long complaints, with a transformer.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors

import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

INTENTS, VOCABULARY = 12, 500


def messages(count: int) -> list:
    rng = random.Random(13)
    lengths = [rng.randint(100, 128) if rng.random() < 0.12 else rng.randint(4, 16) for _ in range(count)]
    return [(torch.tensor(rng.choices(range(1, VOCABULARY), k=n)), rng.randrange(INTENTS)) for n in lengths]


def pad(items):
    tokens = pad_sequence([item[0] for item in items], batch_first=True)  # guilty
    return tokens, torch.tensor([item[1] for item in items])


class ByLength:
    """Batches of messages of about the same length, in random order."""

    def __init__(self, items, size):
        order = sorted(range(len(items)), key=lambda index: len(items[index][0]))
        self.batches = [order[start : start + size] for start in range(0, len(order), size)]
        self.rng = random.Random(0)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        yield from self.rng.sample(self.batches, len(self.batches))


class IntentNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.places = nn.Embedding(128, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, INTENTS)

    def forward(self, tokens):
        padding = tokens == 0
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        hidden = self.layer(hidden, src_key_padding_mask=padding).masked_fill(padding[..., None], 0)
        return self.head(hidden.sum(1) / (~padding).sum(1, keepdim=True))


def main(steps, fixed):
    items = messages(960)
    if fixed:
        loader = DataLoader(items, batch_sampler=ByLength(items, 16), collate_fn=pad)
    else:
        loader = DataLoader(items, batch_size=16, shuffle=True, collate_fn=pad)  # guilty
    net = IntentNet()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    step = 0
    while step < steps:
        for tokens, intents in loader:
            loss = nn.functional.cross_entropy(net(tokens), intents)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
        print(f"{step} steps: {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--fixed", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    main(given.steps, given.fixed)
