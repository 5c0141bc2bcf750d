"""A segmentation net on noisy blobs.

expects: ME701
needs: cpu
gain: no
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class BlobNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.inp = nn.Conv2d(1, w, 3, padding=1)
        self.mid = nn.ModuleList(nn.Conv2d(w, w, 3, padding=2**i, dilation=2**i) for i in range(3))
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for conv in self.mid:
            x = F.relu(conv(x)) + x
        return self.out(x), x


def blobs(n, size, g):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cy, cx, r = (torch.rand(n, 1, 1, generator=g) * size for _ in range(3))
    mask = ((y - cy) ** 2 + (x - cx) ** 2 < (r / 3) ** 2).float().unsqueeze(1)
    return mask + 0.8 * torch.randn(n, 1, size, size, generator=g), mask


class History:
    def __init__(self):
        self.losses, self.features = [], []

    def record(self, loss, features):
        self.losses.append(loss)  # guilty
        self.features.append(features)  # guilty

    def report(self):
        mean = sum(float(v) for v in self.losses[-50:]) / len(self.losses[-50:])
        print(f"last losses {mean:.4f}, features of {len(self.features)} batches")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model, history = BlobNet(), History()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(args.steps):
        x, mask = blobs(8, 40, g)
        logits, features = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.fixed:
            history.record(loss.item(), features.mean().item())
        else:
            history.record(loss, features)  # guilty
        if step % 50 == 49:
            history.report()


if __name__ == "__main__":
    main()
