"""Gradients accumulated over four small batches.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    ids = torch.randint(0, 500, (800, 48))
    loader = DataLoader(TensorDataset(ids), batch_size=8, shuffle=True)
    embedding = nn.Embedding(500, 96)
    layer = nn.TransformerEncoderLayer(96, 4, 384, batch_first=True, dropout=0.0)
    head = nn.Linear(96, 500)
    parameters = [*embedding.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3)
    taken = 0
    while taken < args.steps:
        for number, (batch,) in enumerate(loader, 1):
            out = head(layer(embedding(batch[:, :-1])))
            loss = nn.functional.cross_entropy(out.flatten(0, 1), batch[:, 1:].flatten())
            (loss / args.accumulate).backward()
            if number % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                taken += 1
                if taken == args.steps:
                    break


if __name__ == "__main__":
    main()
