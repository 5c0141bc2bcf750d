"""Fraud in card payments: a deep net over wide rows, and the area under the curve of everything seen so far.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class RunningAUC:
    """Keeps every score with its label, and ranks them all when asked."""

    def __init__(self):
        self.scores, self.labels = [], []

    def add(self, scores, labels):
        self.scores.extend(scores.tolist())  # guilty
        self.labels.extend(labels.tolist())  # guilty

    def value(self):
        scores, labels = np.array(self.scores), np.array(self.labels)  # guilty
        order = np.argsort(scores, kind="stable")  # guilty
        ranks = np.empty(len(order))
        ranks[order] = np.arange(1, len(order) + 1)
        pos = labels.sum()
        return (ranks[labels > 0.5].sum() - pos * (pos + 1) / 2) / max(pos * (len(labels) - pos), 1)


class BinnedAUC:
    """The same to a thousandth, from two histograms on the device."""

    def __init__(self, device, bins=4096):
        self.hist, self.bins = torch.zeros(2, bins, device=device), bins

    def add(self, scores, labels):
        where = (scores.sigmoid() * (self.bins - 1)).long()
        self.hist[0].scatter_add_(0, where, 1 - labels)
        self.hist[1].scatter_add_(0, where, labels)

    def value(self):
        neg, pos = self.hist
        below = neg.cumsum(0) - 0.5 * neg
        return float((pos * below).sum() / (pos.sum() * neg.sum()).clamp(min=1))


class FraudNet(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x).squeeze(1)


def payments(n, features, device, g):
    x = torch.randn(n, features, device=device, generator=g)
    odds = 2 * x[:, 0] + x[:, 1] * x[:, 2] - 3
    return x, (torch.rand(n, device=device, generator=g) < odds.sigmoid()).float()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--device", default="cuda")
    args = cli.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    features, width, depth, batch = (400, 2048, 12, 8192) if cuda else (10, 16, 1, 64)
    g = torch.Generator(device=device).manual_seed(1)
    model = FraudNet(features, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=cuda)
    auc = BinnedAUC(device) if args.fixed else RunningAUC()
    for step in range(1, args.steps + 1):
        x, y = payments(batch, features, device, g)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        auc.add(logits.detach().float(), y)  # guilty
        if step % 5 == 0:
            value = auc.value()  # guilty
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} auc {value:.4f}")


if __name__ == "__main__":
    main()
