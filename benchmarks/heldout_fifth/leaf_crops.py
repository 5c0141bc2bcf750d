"""Classifies drawn leaves, with random crops, turns, colours and blur for every picture in two loader workers.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

KINDS, SIDE = 8, 80


def draw_leaf(i):
    rng = np.random.default_rng(i)
    kind = i % KINDS
    lobes, depth, slim = 1 + kind % 4, 0.15 + 0.1 * (kind // 4), 0.5 + 0.1 * (kind % 3)
    points = []
    for a in np.linspace(0, 2 * math.pi, 60, endpoint=False):
        r = 34 * (1 - depth * math.cos(2 * lobes * a) + 0.03 * rng.standard_normal())
        points.append((SIDE / 2 + slim * r * math.cos(a), SIDE / 2 + 0.9 * r * math.sin(a)))
    ground = tuple(int(c) for c in rng.integers(120, 255, 3))
    leaf = (int(rng.integers(20, 90)), int(rng.integers(90, 190)), int(rng.integers(20, 90)))
    image = Image.new("RGB", (SIDE, SIDE), ground)
    pen = ImageDraw.Draw(image)
    pen.polygon(points, fill=leaf)
    pen.line([(SIDE / 2, 8), (SIDE / 2, SIDE - 8)], fill=(40, 60, 30), width=2)
    return image


class Leaves(Dataset):
    def __init__(self, count, out=64):
        self.images = [draw_leaf(i) for i in range(count)]
        self.out = out

    def __len__(self):
        return len(self.images)

    def augment(self, image, rng):
        image = image.rotate(rng.uniform(-30, 30), Image.BILINEAR, fillcolor=image.getpixel((0, 0)))
        side = int(rng.integers(60, SIDE + 1))
        x, y = rng.integers(0, SIDE - side + 1, 2)
        image = image.resize((self.out, self.out), Image.BILINEAR, (x, y, x + side, y + side))
        image = ImageEnhance.Color(image).enhance(rng.uniform(0.6, 1.4))
        image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.7, 1.3))
        if rng.random() < 0.3:
            image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
        return image

    def __getitem__(self, i):
        rng = np.random.default_rng(torch.randint(2**31, ()).item())
        pixels = np.array(self.augment(self.images[i], rng))
        return torch.from_numpy(pixels).permute(2, 0, 1), i % KINDS


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.skip(x) + self.norm2(self.conv2(h)))


def build_model(width=32):
    blocks = [Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)]
    stem = [nn.Conv2d(3, width, 5, 2, 2), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, KINDS))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=170)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    data = Leaves(960)
    loader = DataLoader(data, 24, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    step = 0
    while step < args.steps:
        for pixels, kind in loader:
            loss = F.cross_entropy(model(pixels.float() / 255 - 0.5), kind, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
