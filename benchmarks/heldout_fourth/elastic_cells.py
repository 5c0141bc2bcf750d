"""Segmentation of cells with a small U-Net; the samples are warped as in the first U-Net paper.

expects: IN118, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 56


def smooth(field, radius=6):
    """A box filter, applied twice in both directions."""
    out = field
    for _ in range(2):
        for axis in (0, 1):
            out = sum(np.roll(out, s, axis) for s in range(-radius, radius + 1)) / (2 * radius + 1)
    return out


def warp_slow(img, dy, dx):
    out = np.zeros_like(img)
    h, w = img.shape
    for r in range(h):
        for c in range(w):
            y = min(max(r + dy[r, c], 0), h - 1.001)  # guilty
            x = min(max(c + dx[r, c], 0), w - 1.001)  # guilty
            y0, x0 = int(y), int(x)  # guilty
            fy, fx = y - y0, x - x0  # guilty
            top = img[y0, x0] * (1 - fx) + img[y0, x0 + 1] * fx  # guilty
            bottom = img[y0 + 1, x0] * (1 - fx) + img[y0 + 1, x0 + 1] * fx  # guilty
            out[r, c] = top * (1 - fy) + bottom * fy  # guilty
    return out


def warp_fast(img, dy, dx):
    h, w = img.shape
    rr, cc = np.mgrid[0:h, 0:w]
    y, x = np.clip(rr + dy, 0, h - 1.001), np.clip(cc + dx, 0, w - 1.001)
    y0, x0 = y.astype(int), x.astype(int)
    fy, fx = y - y0, x - x0
    top = img[y0, x0] * (1 - fx) + img[y0, x0 + 1] * fx
    bottom = img[y0 + 1, x0] * (1 - fx) + img[y0 + 1, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy


class Cells(Dataset):
    def __init__(self, n, warp):
        rng = np.random.default_rng(4)
        yy, xx = np.mgrid[0:SIZE, 0:SIZE]
        self.images, self.masks = [], []
        for _ in range(n):
            mask = np.zeros((SIZE, SIZE))
            for _ in range(6):
                cy, cx, r = [*rng.integers(8, SIZE - 8, 2).tolist(), int(rng.integers(3, 8))]
                mask[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = 1
            self.masks.append(mask)
            self.images.append(mask * 0.6 + rng.normal(0, 0.3, mask.shape))
        self.warp, self.rng = warp, rng

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        dy, dx = (smooth(self.rng.uniform(-1, 1, (SIZE, SIZE))) * 30 for _ in range(2))
        image = self.warp(self.images[i], dy, dx)  # guilty
        mask = self.warp(self.masks[i], dy, dx) > 0.5  # guilty
        return torch.tensor(image[None], dtype=torch.float32), torch.tensor(mask[None], dtype=torch.float32)


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down1, self.down2, self.mid = self.double(1, w), self.double(w, 2 * w), self.double(2 * w, 4 * w)
        self.up2, self.up1 = self.double(6 * w, 2 * w), self.double(3 * w, w)
        self.last = nn.Conv2d(w, 1, 1)

    @staticmethod
    def double(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.ReLU())

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.last(self.up1(torch.cat([F.interpolate(d, scale_factor=2), a], 1)))


def dice_loss(logits, target):
    p = torch.sigmoid(logits)
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Cells(120, warp_fast if args.fixed else warp_slow), batch_size=4, shuffle=True)
    model = UNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4)
    step = 0
    while step < args.steps:
        for image, mask in loader:
            logits = model(image)
            loss = F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(step, round(loss.item(), 4))
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
