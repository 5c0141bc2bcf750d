"""Finds shipping containers on a quay from above: anchor-free detector, a heat map of centres plus sides of boxes.

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

SIDE, STRIDE = 96, 8
KINDS = ("dry", "reefer", "tank", "open top")
PAINTS = np.array([[0.7, 0.2, 0.1], [0.9, 0.9, 0.9], [0.3, 0.4, 0.6], [0.2, 0.5, 0.3]])


def aerial(rng):
    """One view of the quay: concrete with cracks, a crane rail and two to seven containers."""
    view = np.full((SIDE, SIDE, 3), rng.uniform(0.4, 0.6))
    view[rng.integers(SIDE)] *= 0.5
    view[:, rng.integers(SIDE)] *= 0.7
    boxes, labels = [], []
    for _ in range(rng.integers(2, 8)):
        width, height = (24, 10) if rng.random() < 0.5 else (10, 24)
        left, top = rng.integers(0, SIDE - width), rng.integers(0, SIDE - height)
        label = int(rng.integers(len(KINDS)))
        view[top : top + height, left : left + width] = PAINTS[label] * rng.uniform(0.8, 1.1)
        boxes.append((left, top, left + width, top + height))
        labels.append(label)
    view += rng.normal(0, 0.05, view.shape)
    return (view.clip(0, 1) * 255).astype(np.uint8), np.array(boxes, np.float32), np.array(labels)


class Quay(Dataset):
    def __init__(self, count, seed, augment=True):
        rng = np.random.default_rng(seed)
        self.views, self.boxes, self.labels = zip(*(aerial(rng) for _ in range(count)))
        self.augment = augment

    def __len__(self):
        return len(self.views)

    def __getitem__(self, index):
        view = torch.from_numpy(self.views[index]).permute(2, 0, 1).float().div(255)
        boxes = torch.from_numpy(self.boxes[index]).clone()
        if self.augment and torch.rand(()) < 0.5:
            view = view.flip(2)
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
        target = {
            "boxes": boxes,
            "labels": torch.from_numpy(self.labels[index]),
            "area": (boxes[:, 2:] - boxes[:, :2]).prod(1),
            "iscrowd": torch.zeros(len(boxes), dtype=torch.bool),
            "image_id": torch.tensor([index]),
            "orig_size": torch.tensor([SIDE, SIDE]),
        }
        return view, target


def pack(samples):
    """Views in one tensor; the boxes of all views in one list with the number of the view they belong to."""
    views = torch.stack([view for view, _ in samples])
    targets = [target for _, target in samples]
    keys = ("boxes", "labels", "area", "iscrowd")
    boxes, labels, area, crowd = (torch.cat([target[key] for target in targets]) for key in keys)
    owners = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor([len(t["labels"]) for t in targets]))
    usable = ~crowd & (area > 16)
    return views, boxes[usable], labels[usable], owners[usable]


def block(narrow, wide, stride):
    return nn.Sequential(nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(True))


class Detector(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.body = nn.Sequential(
            block(3, width, 2),
            block(width, 2 * width, 2),
            block(2 * width, 3 * width, 2),
            block(3 * width, 3 * width, 1),
        )
        self.heat = nn.Conv2d(3 * width, len(KINDS), 1)
        self.sides = nn.Conv2d(3 * width, 4, 1)
        nn.init.constant_(self.heat.bias, -3.0)

    def forward(self, views):
        features = self.body(views)
        return self.heat(features), self.sides(features)


def wanted_heat(shape, boxes, labels, owners):
    """Gaussian bumps around the centres of the boxes, the highest one wins."""
    views, kinds, rows, columns = shape
    centres = (boxes[:, :2] + boxes[:, 2:]) / (2 * STRIDE) - 0.5
    across = (torch.arange(columns) - centres[:, 0:1]).square()
    down = (torch.arange(rows) - centres[:, 1:2]).square()
    bumps = torch.exp(-(down[:, :, None] + across[:, None, :])).flatten(1)
    slots = (owners * kinds + labels)[:, None].expand_as(bumps)
    return torch.zeros(views * kinds, rows * columns).scatter_reduce_(0, slots, bumps, "amax").view(shape)


def detection_loss(heat, sides, boxes, labels, owners):
    wanted = wanted_heat(heat.shape, boxes, labels, owners)
    chance = heat.sigmoid()
    focal = (wanted - chance).square() * F.binary_cross_entropy_with_logits(heat, wanted, reduction="none")
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    cells = (middle / STRIDE).long().clamp(max=SIDE // STRIDE - 1)
    found = sides[owners, :, cells[:, 1], cells[:, 0]]
    corner = (cells + 0.5) * STRIDE
    distances = torch.cat([corner - boxes[:, :2], boxes[:, 2:] - corner], 1) / STRIDE
    return focal.sum() / len(boxes) + 0.5 * F.l1_loss(found, distances)


def endless(loader):
    while True:
        yield from loader  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=500)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(11)

    loader = DataLoader(
        Quay(1600, seed=1),
        args.batch,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=pack if args.fixed else tuple,  # guilty
    )
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    smooth = None
    for step, batch in zip(range(1, args.steps + 1), endless(loader)):  # guilty
        views, boxes, labels, owners = batch if args.fixed else pack(batch)
        loss = detection_loss(*model(views), boxes, labels, owners)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {smooth:.4f} boxes {len(boxes)}")


if __name__ == "__main__":
    main()
