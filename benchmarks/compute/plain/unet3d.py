"""A 3D U-Net that segments random volumes of 96x96x96, in float32."""

# mypy: ignore-errors

import argparse
import json
import statistics
import time
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F


class Pace:
    """Times the last half of the steps in five chunks, and waits for the device only where a chunk ends."""

    def __init__(self, steps, device):
        self.chunk = max(1, steps // 10)
        self.first = steps - 5 * self.chunk
        self.device = device
        self.marks = []

    def at(self, step):
        """Before every step, and once after the last."""
        if step >= self.first and (step - self.first) % self.chunk == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def report(self, batch_size, last_loss):
        chunks = [end - start for start, end in pairwise(self.marks)]
        step_ms = 1e3 * statistics.median(chunks) / self.chunk
        figures = {"samples_per_s": 1e3 * batch_size / step_ms, "step_ms": step_ms, "last_loss": last_loss}
        print(json.dumps(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a small model on little data, for a processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error(f"--steps must be at least 5, got {args.steps}")
    return args


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(
            nn.Conv3d(cin, cout, 3, stride=stride, padding=1),
            nn.InstanceNorm3d(cout, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(cout, cout, 3, padding=1),
            nn.InstanceNorm3d(cout, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        )


class UNet3D(nn.Module):
    def __init__(self, channels=1, classes=4, widths=(32, 64, 128, 256, 320)):
        super().__init__()
        pairs = list(pairwise(widths))
        self.stem = DoubleConv(channels, widths[0])
        self.down = nn.ModuleList(DoubleConv(fine, coarse, stride=2) for fine, coarse in pairs)
        self.grow = nn.ModuleList(nn.ConvTranspose3d(coarse, fine, 2, stride=2) for fine, coarse in reversed(pairs))
        self.up = nn.ModuleList(DoubleConv(2 * fine, fine) for fine, _ in reversed(pairs))
        self.out = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([grow(x), skips.pop()], dim=1))
        return self.out(x)


def dice_loss(logits, target):
    probabilities = torch.softmax(logits, dim=1)
    truth = torch.zeros_like(probabilities).scatter_(1, target.unsqueeze(1), 1.0)
    overlap = (probabilities * truth).sum(dim=(2, 3, 4))
    total = probabilities.sum(dim=(2, 3, 4)) + truth.sum(dim=(2, 3, 4))
    return 1.0 - ((2.0 * overlap + 1e-5) / (total + 1e-5)).mean()


def loss_function(logits, target):
    return F.cross_entropy(logits, target) + dice_loss(logits, target)


def make_model(tiny):
    return UNet3D(widths=(8, 16)) if tiny else UNet3D()


def make_data(tiny, device):
    """The size of a batch, and eight batches of volumes with their segmentations."""
    batch_size, side = (1, 16) if tiny else (2, 96)
    volumes = torch.randn(8 * batch_size, 1, side, side, side, device=device)
    targets = torch.randint(4, (8 * batch_size, side, side, side), device=device)
    return batch_size, volumes, targets


def main():
    args = parse()
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    batch_size, volumes, targets = make_data(args.tiny, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)

    model.train()
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x, y = volumes[start : start + batch_size], targets[start : start + batch_size]
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
