"""Keypoints of drawn figures, regressed by a small CNN.

expects: ME709, IN110, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
import functools
import io
import itertools

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset


def draw(rng, size=256):
    joints = rng.integers(40, size - 40, (6, 2))
    image = Image.fromarray(rng.integers(0, 90, (size, size, 3), dtype=np.uint8))
    pen = ImageDraw.Draw(image)
    pen.line([tuple(map(int, j)) for j in joints], fill=(200, 180, 90), width=7)
    for x, y in joints:
        pen.ellipse([int(x) - 6, int(y) - 6, int(x) + 6, int(y) + 6], fill=(250, 60, 60))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92)
    return out.getvalue(), joints.astype(np.float32) / size


class Figures(Dataset):
    def __init__(self, n, keep):
        rng = np.random.default_rng(77)
        self.items = [draw(rng) for _ in range(n)]
        self.decode = functools.lru_cache(maxsize=keep)(self._decode)  # guilty

    def _decode(self, i):
        image = Image.open(io.BytesIO(self.items[i][0])).convert("RGB")  # guilty
        return np.asarray(image.resize((64, 64), Image.LANCZOS)).copy()  # guilty

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        pixels = torch.from_numpy(self.decode(i)).permute(2, 0, 1).float().div_(255)  # guilty
        return pixels, torch.from_numpy(self.items[i][1])


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        chans = [3, 16, 32, 48]
        blocks = [
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1))
            for a, b in itertools.pairwise(chans)
        ]
        self.features = nn.Sequential(*blocks)
        self.regress = nn.Linear(48 * 8 * 8, 12)

    def forward(self, x):
        return self.regress(self.features(x).flatten(1)).view(-1, 6, 2)


def fit(steps, fixed):
    torch.manual_seed(0)
    figures = Figures(200, keep=None if fixed else 48)  # guilty
    loader = DataLoader(figures, batch_size=16, shuffle=True, drop_last=True)
    net, done = PoseNet(), 0
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    while done < steps:
        for image, joints in loader:  # guilty
            loss = nn.functional.smooth_l1_loss(net(image), joints)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
        print(f"{done}: {loss.item():.5f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    ns = cli.parse_args()
    fit(ns.steps, ns.fixed)
