"""A small anchor-free detector on synthetic scenes, with a collate function for the varying number of boxes.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, STRIDE, CLASSES = 96, 4, 3
GRID = SIZE // STRIDE


class Scenes(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.images, self.boxes = [], []
        for _ in range(n):
            image = torch.rand(3, SIZE, SIZE, generator=g) * 0.2
            boxes = []
            for _ in range(int(torch.randint(2, 6, (), generator=g))):
                x, y = torch.randint(0, 64, (2,), generator=g).tolist()
                w, h = torch.randint(12, 32, (2,), generator=g).tolist()
                c = int(torch.randint(0, CLASSES, (), generator=g))
                image[c, y : y + h, x : x + w] += 0.6
                boxes.append((x, y, w, h, c))
            self.images.append(image)
            self.boxes.append(boxes)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.boxes[i]


def collate(samples, fixed=False):
    images = torch.stack([image for image, _ in samples])
    heat = torch.zeros(len(samples), CLASSES, GRID, GRID)
    size = torch.zeros(len(samples), 2, GRID, GRID)
    axis = torch.arange(GRID)
    for b, (_, boxes) in enumerate(samples):  # guilty
        for x, y, w, h, c in boxes:  # guilty
            cx, cy = (x + w / 2) / STRIDE, (y + h / 2) / STRIDE
            sigma = max(w, h) / STRIDE / 4
            size[b, :, int(cy), int(cx)] = torch.tensor([w / SIZE, h / SIZE])
            if fixed:
                d = (axis[:, None] - int(cy)) ** 2 + (axis[None, :] - int(cx)) ** 2
                heat[b, c] = torch.maximum(heat[b, c], torch.exp(-d / (2 * sigma**2)))
                continue
            for i in range(GRID):  # guilty
                for j in range(GRID):  # guilty
                    d = (i - int(cy)) ** 2 + (j - int(cx)) ** 2  # guilty
                    value = math.exp(-d / (2 * sigma**2))  # guilty
                    if value > 0.05 and value > heat[b, c, i, j]:  # guilty
                        heat[b, c, i, j] = value  # guilty
    return images, heat, size


class CenterNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, w, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2 * w, 4 * w, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(4 * w, 4 * w, 3, 1, 1),
            nn.ReLU(),
        )
        self.heat, self.size = nn.Conv2d(4 * w, CLASSES, 1), nn.Conv2d(4 * w, 2, 1)

    def forward(self, x):
        z = self.body(x)
        return self.heat(z), self.size(z)


def focal(logits, target):
    p = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    pos = target.ge(0.999).float()
    near = (1 - target) ** 4
    loss = -pos * (1 - p) ** 2 * p.log() - (1 - pos) * near * p**2 * (1 - p).log()
    return loss.sum() / pos.sum().clamp(min=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--batch-size", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Scenes(400),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        collate_fn=partial(collate, fixed=args.fixed),  # guilty
    )
    model = CenterNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for images, heat, size in loader:  # guilty
            heat_hat, size_hat = model(images)
            at = size.gt(0).float()
            loss = focal(heat_hat, heat) + F.l1_loss(size_hat * at, size, reduction="sum") / at.sum().clamp(min=1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print(step, round(loss.item(), 3))
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
