"""Sharpens scans of varnished paintings: an upscaler with pixel, feature and adversarial losses.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn


def canvases(count, side):
    """Strokes of several widths over a warm ground, with the fine cracks of old varnish."""
    line = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(line, line, indexing="ij")
    images = torch.zeros(count, 3, side, side)
    for sharp in (3.0, 7.0, 15.0):
        turn = 6.28 * torch.rand(count, 1, 1)
        wave = torch.sin(sharp * (x * turn.cos() + y * turn.sin()) + 6.28 * torch.rand(count, 1, 1))
        images += torch.rand(count, 3, 1, 1) * wave[:, None]
    cracks = (torch.rand(count, 1, side, side) > 0.985).float()
    return (0.5 + 0.2 * images - 0.4 * F.max_pool2d(cracks, 3, 1, 1)).clamp(0, 1)


def shrink(high):
    return F.interpolate(high, scale_factor=0.5, mode="area")


class Features(nn.Module):
    """The early layers of a classifier of strokes; its activations are compared, not its answers."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * width, 64, 3, 1, 1))

    def forward(self, images):
        early = self.first(images)
        return early, self.second(early)


def learn_strokes(features, images, steps):
    """A short pretext task: which way was the canvas turned?"""
    head = nn.Linear(64, 4)
    optimizer = torch.optim.Adam([*features.parameters(), *head.parameters()], 1e-3)
    for _ in range(steps):
        some = images[torch.randint(len(images), (8,))]
        turn = int(torch.randint(4, ()))
        logits = head(features(torch.rot90(some, turn, (2, 3)))[1].mean((2, 3)))
        loss = F.cross_entropy(logits, torch.full((8,), turn))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return features.eval()


class Likeness(nn.Module):
    def __init__(self, features, weights=(1.0, 0.5)):
        super().__init__()
        self.features, self.weights = features, weights

    def forward(self, made, high):
        ours = self.features(made)
        theirs = self.features(high)  # guilty
        return sum(weight * F.l1_loss(a, b) for weight, a, b in zip(self.weights, ours, theirs))


class Upscaler(nn.Module):
    def __init__(self, width=24, blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.PReLU(), nn.Conv2d(width, width, 3, 1, 1))
            for _ in range(blocks)
        )
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, low):
        hidden = self.stem(low)
        for block in self.body:
            hidden = hidden + block(hidden)
        return self.tail(hidden) + F.interpolate(low, scale_factor=2.0, mode="bilinear", align_corners=False)


def critic(width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 3, 1, 1),
    )


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=64)
    cli.add_argument("--batch", type=int, default=8)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(8)
    images = canvases(160, 64)
    features = learn_strokes(Features(), images, steps=12)
    if args.fixed:
        features.requires_grad_(False)
    likeness = Likeness(features)  # guilty
    upscaler, judge = Upscaler(), critic()
    optimizer = torch.optim.Adam(upscaler.parameters(), 4e-4)
    judge_optimizer = torch.optim.Adam(judge.parameters(), 2e-4, betas=(0.5, 0.99))
    for step in range(1, args.steps + 1):
        high = images[torch.randint(len(images), (args.batch,))]
        low = shrink(high)
        made = upscaler(low)

        judge.requires_grad_(True)
        real, fake = judge(high), judge(made.detach())
        judge_loss = F.relu(1 - real).mean() + F.relu(1 + fake).mean()
        judge_optimizer.zero_grad()
        judge_loss.backward()
        judge_optimizer.step()

        judge.requires_grad_(False)
        loss = F.l1_loss(made, high) + 0.2 * likeness(made, high) - 0.01 * judge(made).mean()  # guilty
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} upscaler {loss.item():.4f} judge {judge_loss.item():.4f}")


if __name__ == "__main__":
    main()
