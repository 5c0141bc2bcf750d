"""Outlines rice paddies from the air, with an averaged teacher that labels the pictures nobody has drawn on.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

KINDS, SIDE = 4, 64


def fields(count):
    """A patchwork of terraces: nearest of some seeds, each with a crop, a tint and the rows of its planting."""
    line = torch.linspace(0, 1, SIDE)
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).view(-1, 2)
    seeds = torch.rand(count, 9, 2)
    crops = torch.randint(KINDS, (count, 9))
    nearest = torch.cdist(grid.expand(count, -1, -1), seeds).argmin(2)
    labels = crops.gather(1, nearest).view(count, SIDE, SIDE)
    turn = 6.28 * torch.rand(count, 9).gather(1, nearest).view(count, SIDE, SIDE)
    rows = torch.sin(60 * (grid[:, 0].view(SIDE, SIDE) * turn.cos() + grid[:, 1].view(SIDE, SIDE) * turn.sin()))
    tint = torch.rand(KINDS, 3)[labels].permute(0, 3, 1, 2)
    images = tint + 0.15 * rows[:, None] * (labels[:, None] > 0) + 0.15 * torch.randn(count, 3, SIDE, SIDE)
    return images, labels


def weather(images):
    """A sky of its own for every picture: haze, brightness, and the shadows of clouds."""
    count = len(images)
    clouds = F.interpolate(torch.rand(count, 1, 5, 5), size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    shadow = 1 - 0.4 * (clouds > 0.6).float()
    bright = 0.8 + 0.4 * torch.rand(count, 1, 1, 1)
    return images * shadow * bright + 0.1 * torch.rand(count, 3, 1, 1)


def cut_out(images, labels, sure, others, other_labels, other_sure):
    """CutMix: a rectangle of one picture is put into another, and its labels with it."""
    high, wide = torch.randint(SIDE // 4, SIDE // 2 + 1, (2,)).tolist()
    top, left = int(torch.randint(SIDE - high, ())), int(torch.randint(SIDE - wide, ()))
    inside = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    inside[top : top + high, left : left + wide] = True
    return (
        torch.where(inside, others, images),
        torch.where(inside, other_labels, labels),
        torch.where(inside, other_sure, sure),
    )


def double(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, 1, 1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.one, self.two, self.deep = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up_two, self.up_one = double(6 * width, 2 * width), double(3 * width, width)
        self.out = nn.Conv2d(width, KINDS, 1)

    def forward(self, images):
        one = self.one(images)
        two = self.two(F.max_pool2d(one, 2))
        deep = self.deep(F.max_pool2d(two, 2))
        two = self.up_two(torch.cat([two, F.interpolate(deep, scale_factor=2.0)], 1))
        return self.out(self.up_one(torch.cat([one, F.interpolate(two, scale_factor=2.0)], 1)))


@torch.no_grad()
def follow(teacher, student, keep=0.98):
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - keep)
    for theirs, ours in zip(teacher.buffers(), student.buffers()):
        theirs.copy_(ours)


@torch.no_grad()
def overlap(net, images, labels):
    net.eval()
    made = net(images).argmax(1)
    net.train()
    scores = [((made == k) & (labels == k)).sum() / ((made == k) | (labels == k)).sum() for k in range(KINDS)]
    return torch.stack(scores).mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=70)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(47)
    drawn, labels = fields(48)
    bare, _ = fields(200)
    held_out = drawn[:8], labels[:8]
    student = UNet()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(1, args.steps + 1):
        rows = 8 + torch.randint(40, (6,))
        some = bare[torch.randint(len(bare), (6,))]
        with torch.no_grad():
            sure, guess = teacher(some).softmax(1).max(1)
        mixed, goal, trust = cut_out(weather(some), guess, sure, *(part.flip(0) for part in (some, guess, sure)))
        taught, free = student(torch.cat([weather(drawn[rows]), mixed])).split(6)
        loss = F.cross_entropy(taught, labels[rows])
        loss = loss + (F.cross_entropy(free, goal, reduction="none") * (trust > 0.8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student)
        if step % 35 == 0:
            print(f"step {step} loss {loss.item():.4f} overlap {overlap(teacher, *held_out):.3f}")


if __name__ == "__main__":
    main()
