"""SimSiam pretraining on small satellite tiles, two augmented views of every tile.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 32


def make_tiles(count, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 5, 5, generator=g)
    land = F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    roads = (torch.rand(count, 1, SIDE, 1, generator=g) > 0.95).float() * 1.5
    rivers = (torch.rand(count, 1, 1, SIDE, generator=g) > 0.95).float() * -1.5
    return (land + roads + rivers).clamp(-2.5, 2.5)


class Augment:
    """Shifts, flips, channel gains and one erased square; drawn once for a whole batch and per tile."""

    def __init__(self, max_shift=6, hole=8):
        self.max_shift, self.hole = max_shift, hole

    def __call__(self, tiles):
        n = len(tiles)
        dx, dy = torch.randint(-self.max_shift, self.max_shift + 1, (2,)).tolist()
        tiles = torch.roll(tiles, (dy, dx), dims=(2, 3))
        if torch.rand(()) < 0.5:
            tiles = tiles.flip(3)
        gain = 1 + 0.3 * torch.randn(n, 3, 1, 1)
        shift = 0.2 * torch.randn(n, 3, 1, 1)
        top, left = torch.randint(SIDE - self.hole, (2,)).tolist()
        tiles = tiles * gain + shift
        tiles[:, :, top : top + self.hole, left : left + self.hole] = 0
        return tiles


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.GroupNorm(4, width), nn.GroupNorm(4, width)

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(x + self.norm_two(self.two(y)))


class SimSiam(nn.Module):
    def __init__(self, width=32, out=128, hidden=48):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            Residual(width),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            Residual(2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(2 * width, out), nn.LayerNorm(out), nn.ReLU(), nn.Linear(out, out))
        self.predictor = nn.Sequential(nn.Linear(out, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, out))

    def embed(self, view):
        return self.projector(self.backbone(view))  # guilty

    def half(self, view, other):
        predicted = self.predictor(self.embed(view))
        target = self.embed(other).detach()  # guilty
        return -F.cosine_similarity(predicted, target, dim=1).mean()

    def forward(self, first, second):
        return 0.5 * self.half(first, second) + 0.5 * self.half(second, first)  # guilty

    def joint(self, first, second):
        z1, z2 = self.embed(first), self.embed(second)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        ahead = -F.cosine_similarity(p1, z2.detach(), dim=1).mean()
        back = -F.cosine_similarity(p2, z1.detach(), dim=1).mean()
        return 0.5 * ahead + 0.5 * back


def endless(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=48)
    cli.add_argument("--lr", type=float, default=0.03)
    args = cli.parse_args()
    torch.manual_seed(3)

    tiles = make_tiles(4000, 21)
    loader = DataLoader(TensorDataset(tiles), args.batch_size, shuffle=True, drop_last=True)
    model, augment = SimSiam(), Augment()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    run = model.joint if args.fixed else model

    batches = endless(loader)
    for step in range(1, args.steps + 1):
        (batch,) = next(batches)
        loss = run(augment(batch), augment(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            print(f"step {step:4d}  similarity {-loss.item():.4f}")


if __name__ == "__main__":
    main()
