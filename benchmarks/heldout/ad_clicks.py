"""Click-through prediction: embeddings of categorical fields beside dense counts, in a small tower.

expects: IN103
needs: cpu
"""

# mypy: ignore-errors
import argparse
import time

import torch
from torch import nn

FIELDS = [1000, 400, 5000, 64, 24, 7, 300, 2000]


class Tower(nn.Module):
    def __init__(self, dense=13, width=16, hidden=256, depth=6):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in FIELDS)
        sizes = [dense + width * len(FIELDS), *[hidden] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in sizes[1:])
        self.out = nn.Linear(hidden, 1)

    def forward(self, dense, fields):
        parts = [table(fields[:, i]) for i, table in enumerate(self.tables)]
        x = torch.cat([dense, *parts], 1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return self.out(x).squeeze(1)


def impressions(rows, generator):
    dense = torch.randn(rows, 13, generator=generator)
    fields = torch.stack([torch.randint(size, (rows,), generator=generator) for size in FIELDS], 1)
    clicked = (dense[:, 0] + (fields[:, 5] > 4) + 0.3 * torch.randn(rows, generator=generator) > 1).float()
    return dense, fields, clicked


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    if args.fixed:
        torch.set_num_threads(1)
    else:
        torch.set_num_threads(16)  # guilty
    torch.manual_seed(1)
    dense, fields, clicked = impressions(60_000, torch.Generator().manual_seed(1))
    model = Tower()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    order = torch.randperm(len(clicked))
    begun = time.perf_counter()
    for step in range(args.steps):
        start = step * args.batch_size % (len(order) - args.batch_size)
        rows = order[start : start + args.batch_size]
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense[rows], fields[rows]), clicked[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f} after {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
