"""A keypoint network on pictures of stick figures, trained on Gaussian heatmaps with an optimizer closure.

expects: HO402, HO411, IN109
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

JOINTS, SIZE, HEAT, SIGMA = 13, 96, 48, 2.0


def make_figures(n, seed):
    """Pictures with bright blobs at the joints, the joints in heatmap cells, and which of them are visible."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.35, 0.65, (n, 1, 2))
    joints = np.clip(centre + rng.normal(0, 0.16, (n, JOINTS, 2)), 0.02, 0.98)
    images = rng.integers(0, 90, (n, 3, SIZE, SIZE), dtype=np.uint8)
    for i in range(n):
        for j, (x, y) in enumerate((joints[i] * SIZE).astype(int)):
            images[i, j % 3, max(0, y - 2) : y + 3, max(0, x - 2) : x + 3] = 130 + 9 * j
    visible = rng.random((n, JOINTS)) < 0.85
    return torch.from_numpy(images), joints * HEAT, visible


def heatmaps(joints, visible):
    """One Gaussian for each visible joint."""
    maps = np.zeros((len(joints), JOINTS, HEAT, HEAT), np.float32)
    radius = int(3 * SIGMA)
    for i in range(len(joints)):  # guilty
        for j in range(JOINTS):  # guilty
            if not visible[i, j]:
                continue
            cx, cy = int(joints[i, j, 0]), int(joints[i, j, 1])
            for y in range(max(0, cy - radius), min(HEAT, cy + radius + 1)):  # guilty
                row = maps[i, j, y]
                for x in range(max(0, cx - radius), min(HEAT, cx + radius + 1)):  # guilty
                    row[x] = math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * SIGMA**2))  # guilty
    return torch.from_numpy(maps)


def heatmaps_at_once(joints, visible):
    centre = np.floor(joints).astype(np.float32)
    cells, radius = np.arange(HEAT, dtype=np.float32), int(3 * SIGMA)
    dx, dy = cells - centre[..., :1], cells - centre[..., 1:]
    gx = np.exp(-(dx**2) / (2 * SIGMA**2)) * (np.abs(dx) <= radius)
    gy = np.exp(-(dy**2) / (2 * SIGMA**2)) * (np.abs(dy) <= radius) * visible[..., None]
    return torch.from_numpy(gy[..., :, None] * gx[..., None, :])


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Hourglass(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = block(3, width, 2)
        self.skip = block(width, width)
        self.down = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.deep = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 2 * width))
        self.narrow = nn.Conv2d(2 * width, width, 1)
        self.head = nn.Conv2d(width, JOINTS, 1)

    def forward(self, x):
        top = self.stem(x)
        mid = self.down(top)
        mid = mid + F.interpolate(self.deep(mid), scale_factor=2)
        return self.head(self.skip(top) + F.interpolate(self.narrow(mid), scale_factor=2))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=12)
    args = cli.parse_args()
    torch.manual_seed(6)
    images, joints, visible = make_figures(400, 1)
    draw = heatmaps_at_once if args.fixed else heatmaps
    model = Hourglass()
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    rng = np.random.default_rng(2)
    for step in range(1, args.steps + 1):
        rows = rng.integers(0, len(images), args.batch)
        x = images[rows].float().div_(255.0)
        target = draw(joints[rows], visible[rows])  # guilty
        weight = torch.from_numpy(visible[rows])[..., None, None]

        def closure(x=x, target=target, weight=weight):
            optimizer.zero_grad()
            loss = ((model(x) - target).square() * weight).mean() * 100
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 75 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
