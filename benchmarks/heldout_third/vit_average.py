"""A small vision transformer on checkerboards, with mixup, averaged weights and a log line now and then.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ViT(nn.Module):
    def __init__(self, patch=8, size=32, dim=96, depth=3, classes=8):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.encoder(x)[:, 0])


class Average:
    def __init__(self, model, decay):
        self.shadow, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay
        self.pairs = list(self.shadow.parameters()), list(model.parameters())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(*self.pairs, 1 - self.decay)


def boards(n, size=32, classes=8):
    g = torch.Generator().manual_seed(9)
    y = torch.randint(0, classes, (n,), generator=g)
    t = torch.arange(size)
    period = (y + 2).view(-1, 1, 1)
    board = ((t[None, :, None] // period + t[None, None, :] // period) % 2).float()
    return TensorDataset(board[:, None] + 0.7 * torch.randn(n, 3, size, size, generator=g), y)


def mixup(x, y):
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    order = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[order], y, y[order], lam


@torch.no_grad()
def evaluate(model, loader):
    return sum((model(x).argmax(1) == y).float().mean().item() for x, y in loader) / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    train = DataLoader(boards(1600), batch_size=16, shuffle=True, drop_last=True)
    held = DataLoader(boards(64), batch_size=64)
    model = ViT()
    average = Average(model, 0.98)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * s / args.steps))
    losses = []
    while len(losses) < args.steps:
        for x, y in train:
            x, ya, yb, lam = mixup(x, y)
            logits = model(x)
            loss = lam * F.cross_entropy(logits, ya) + (1 - lam) * F.cross_entropy(logits, yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
            average.update()
            losses.append(loss.item())
            if len(losses) % 120 == 0:
                print(f"{len(losses)}: loss {losses[-1]:.3f} held-out {evaluate(average.shadow, held):.3f}")
            if len(losses) >= args.steps:
                break


if __name__ == "__main__":
    main()
