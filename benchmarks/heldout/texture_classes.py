"""Textures told apart by a network that takes longer to learn from a batch than a worker to draw the next one.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, count=640, side=40):
        self.count = count
        self.grid = np.mgrid[0:side, 0:side].astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng([index, int(torch.randint(1 << 30, ()))])
        kind = index % 8
        angle = kind * np.pi / 8 + rng.normal(0, 0.05)
        wave = np.sin((self.grid[0] * np.cos(angle) + self.grid[1] * np.sin(angle)) * (0.4 + 0.1 * rng.random()))
        return (wave + rng.normal(0, 0.4, wave.shape)).astype(np.float32), kind


class PatchMixer(nn.Module):
    def __init__(self, side=40, patch=8, width=160, depth=3):
        super().__init__()
        patches = (side // patch) ** 2
        self.cut = nn.Unfold(patch, stride=patch)
        self.embed = nn.Linear(patch**2, width)
        self.across = nn.ModuleList(nn.Linear(patches, patches) for _ in range(depth))
        self.within = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        x = self.embed(self.cut(x.unsqueeze(1)).transpose(1, 2))
        for across, within in zip(self.across, self.within, strict=True):
            x = x + across(x.transpose(1, 2)).transpose(1, 2)
            x = x + nn.functional.gelu(within(x))
        return self.head(x.mean(1))


def train_one_epoch(model, loader, optimizer):
    model.train()
    right = 0
    for images, kinds in loader:
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == kinds).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(73)
    torch.set_num_threads(1)
    loader = DataLoader(
        Textures(), batch_size=32, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0
    )
    model = PatchMixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: {train_one_epoch(model, loader, optimizer):.1%} right")


if __name__ == "__main__":
    main()
