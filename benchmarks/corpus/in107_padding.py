"""A collate function that pads token lists one number at a time.

expects: IN107
needs: cpu
"""
# mypy: ignore-errors

import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __init__(self, count):
        source = random.Random(0)
        self.rows = [[source.randrange(1, 800) for _ in range(source.randint(300, 520))] for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad_by_hand(rows):
    longest = max(len(row) for row in rows)
    out = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):  # guilty
        for j, token in enumerate(row):  # guilty
            out[i, j] = token  # guilty
    return out


def pad_at_once(rows):
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    collate = pad_at_once if args.fixed else pad_by_hand
    loader = DataLoader(  # guilty
        Tokens(12 * args.steps), batch_size=12, num_workers=1, collate_fn=collate, persistent_workers=True
    )
    embedding, rnn, head = nn.Embedding(800, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 800)
    optimizer = torch.optim.SGD([*embedding.parameters(), *rnn.parameters(), *head.parameters()], lr=0.1)
    for tokens in loader:
        states, _ = rnn(embedding(tokens[:, :40]))
        loss = nn.functional.cross_entropy(head(states[:, -1]), tokens[:, 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
