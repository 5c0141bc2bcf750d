"""One-stage detector on drawn boxes: three heads in a registry, targets put on the grid for every picture.

expects: HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, STRIDE, NUM_CLASSES = 96, 8, 3
CELLS = SIZE // STRIDE
ASSIGNERS = {}


def register(name):
    def wrap(fn):
        ASSIGNERS[name] = fn
        return fn

    return wrap


class Boxes(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(12)
        self.samples = []
        for _ in range(n):
            img = rng.normal(0, 0.1, (3, SIZE, SIZE)).astype(np.float32)
            boxes = []
            for _ in range(int(rng.integers(3, 7))):
                w, h = rng.integers(14, 40, 2)
                x, y = rng.integers(0, SIZE - w), rng.integers(0, SIZE - h)
                c = int(rng.integers(NUM_CLASSES))
                img[c, y : y + h, x : x + w] += 0.7
                boxes.append([x, y, x + w, y + h, c])
            self.samples.append((torch.from_numpy(img), torch.tensor(boxes, dtype=torch.float32)))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def collate(batch):
    return torch.stack([b[0] for b in batch]), [b[1] for b in batch]


@register("loop")
def assign_cells(boxes):
    """Class, centerness and distances to the four sides for every cell inside of the smallest box over it."""
    cls = torch.full((CELLS, CELLS), NUM_CLASSES)
    reg = torch.zeros(4, CELLS, CELLS)
    for i in range(CELLS):
        for j in range(CELLS):
            cy, cx = (i + 0.5) * STRIDE, (j + 0.5) * STRIDE
            best = float("inf")
            for x0, y0, x1, y1, c in boxes.tolist():
                area = (x1 - x0) * (y1 - y0)
                if x0 < cx < x1 and y0 < cy < y1 and area < best:  # guilty
                    best = area
                    cls[i, j] = int(c)  # guilty
                    reg[:, i, j] = torch.tensor([cx - x0, cy - y0, x1 - cx, y1 - cy])  # guilty
    return cls, reg / SIZE


@register("tensor")
def assign_cells_at_once(boxes):
    c = (torch.arange(CELLS) + 0.5) * STRIDE
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    x0, y0, x1, y1 = (boxes[:, k].view(-1, 1, 1) for k in range(4))
    sides = torch.stack([cx - x0, cy - y0, x1 - cx, y1 - cy], 1)
    inside = sides.min(1).values > 0
    area = torch.where(inside, ((x1 - x0) * (y1 - y0)).expand_as(inside), torch.inf)
    best = area.argmin(0)
    hit = inside.any(0)
    cls = torch.where(hit, boxes[:, 4].long()[best], NUM_CLASSES)
    reg = sides.gather(0, best.expand(1, 4, CELLS, CELLS))[0]
    return cls, torch.where(hit, reg, 0.0) / SIZE


class Detector(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        layers, cin = [], 3
        for k in range(3):
            layers += [nn.Conv2d(cin, width << k, 3, 2, 1), nn.BatchNorm2d(width << k), nn.ReLU()]
            cin = width << k
        self.backbone = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({"cls": nn.Conv2d(cin, NUM_CLASSES + 1, 3, 1, 1), "reg": nn.Conv2d(cin, 4, 3, 1, 1)})

    def forward(self, images):
        feats = self.backbone(images)
        return {name: head(feats) for name, head in self.heads.items()}


def losses(out, targets, assign):
    cls, reg = zip(*[assign(t) for t in targets], strict=True)  # guilty
    cls, reg = torch.stack(cls), torch.stack(reg)
    fg = cls < NUM_CLASSES
    loss_reg = (F.smooth_l1_loss(out["reg"], reg, reduction="none").sum(1) * fg).sum() / fg.sum().clamp(min=1)
    return {"cls": F.cross_entropy(out["cls"], cls), "reg": loss_reg}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Boxes(160), 8, shuffle=True, collate_fn=collate)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    assign = ASSIGNERS["tensor" if args.fixed else "loop"]
    it = 0
    while it < args.steps:
        for images, targets in loader:
            parts = losses(model(images), targets, assign)
            total = sum(parts.values())
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            it += 1
            if it % 40 == 0:
                print(f"iter {it} " + " ".join(f"{k} {v.item():.4f}" for k, v in parts.items()))
            if it >= args.steps:
                break


if __name__ == "__main__":
    main()
