"""Finds the cars on aerial photographs of parking lots: a network that paints a peak at the middle of each car.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, MOST = 128, 48


class ParkingLots(Dataset):
    """Grey asphalt with rows of bright and dark cars, turned by a quarter or not."""

    def __init__(self, count, seed, near):
        self.count, self.seed, self.near = count, seed, near
        self.line = np.arange(SIDE, dtype=np.float64)

    def __len__(self):
        return self.count

    def park(self, rng):
        photo = rng.normal(0.45, 0.05, (SIDE, SIDE)).astype(np.float32)
        cars = []
        for row in range(6, SIDE - 8, 18):
            for column in range(6, SIDE - 6, 14):
                if len(cars) < MOST and rng.random() < 0.8:
                    x, y = column + int(rng.integers(-1, 2)), row + int(rng.integers(-2, 3))
                    wide, tall = int(rng.integers(2, 4)), int(rng.integers(4, 6))
                    paint = rng.choice([0.1, 0.25, 0.75, 0.95])
                    photo[max(y - tall, 0) : y + tall, max(x - wide, 0) : x + wide] = paint
                    cars.append((x, y, wide, tall))
        return photo, cars

    def peak(self, heat, x, y, spread):
        """Paints one bump that ends at three spreads from its middle."""
        reach = int(3 * spread)
        left, top, right, bottom = 0, 0, SIDE, SIDE
        if self.near:
            left, top, right, bottom = max(x - reach, 0), max(y - reach, 0), x + reach + 1, y + reach + 1
        aside, down = self.line[left:right] - x, self.line[top:bottom, None] - y
        bump = np.exp(-(aside**2 + down**2) / (2 * spread**2))  # guilty
        bump[(np.abs(aside) > reach) | (np.abs(down) > reach)] = 0  # guilty
        np.maximum(heat[top:bottom, left:right], bump, out=heat[top:bottom, left:right])  # guilty

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        photo, cars = self.park(rng)
        heat = np.zeros((SIDE, SIDE), np.float32)
        sizes = np.zeros((2, SIDE, SIDE), np.float32)
        for x, y, wide, tall in cars:
            self.peak(heat, x, y, spread=(wide + tall) / 5)  # guilty
            sizes[:, y, x] = wide, tall
        return torch.from_numpy(photo)[None], torch.from_numpy(heat)[None], torch.from_numpy(sizes)


class PeakNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
        )  # fmt: skip
        self.up = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 8, 4, 2, 1), nn.ReLU(True),
        )  # fmt: skip
        self.heat, self.size = nn.Conv2d(8, 1, 3, 1, 1), nn.Conv2d(8, 2, 1)
        nn.init.constant_(self.heat.bias, -3.0)

    def forward(self, photos):
        features = self.up(self.down(photos))
        return self.heat(features), self.size(features)


def peak_loss(said, heat):
    """Focal loss of heat maps: pixels near a middle count less as misses."""
    middle = heat.eq(1).float()
    hit = middle * torch.sigmoid(-said).square() * F.logsigmoid(said)
    miss = (1 - middle) * (1 - heat).pow(4) * torch.sigmoid(said).square() * F.logsigmoid(-said)
    return -(hit + miss).sum() / middle.sum().clamp(min=1)


def size_loss(said, sizes):
    there = sizes[:, :1] > 0
    return (F.l1_loss(said, sizes, reduction="none") * there).sum() / there.sum().clamp(min=1)


@torch.no_grad()
def found(model, photos, heat, bar=0.3):
    """Share of the cars with a local peak on their middle or next to it."""
    model.eval()
    said = torch.sigmoid(model(photos)[0])
    model.train()
    peaks = (said == F.max_pool2d(said, 3, 1, 1)) & (said > bar)
    close = F.max_pool2d(peaks.float(), 3, 1, 1) > 0
    return close[heat == 1].float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(8)

    lots = ParkingLots(args.steps * 8, seed=5, near=args.fixed)
    loader = DataLoader(lots, batch_size=8)
    held = ParkingLots(24, seed=6, near=args.fixed)
    held_photos, held_heat, _ = next(iter(DataLoader(held, batch_size=24)))
    model = PeakNet()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=args.steps + 1)
    for step, (photos, heat, sizes) in enumerate(loader, 1):
        said_heat, said_size = model(photos)
        loss = peak_loss(said_heat, heat) + 0.1 * size_loss(said_size, sizes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f} found {found(model, held_photos, held_heat):.3f}")


if __name__ == "__main__":
    main()
