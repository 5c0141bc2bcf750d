"""Semi-supervised classification with a mean teacher: weak and strong noise, an average of weights, a ramp.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1))


def backbone(w=24, classes=6):
    return nn.Sequential(
        *(block(3, w), block(w, w), nn.MaxPool2d(2)),
        *(block(w, 2 * w), block(2 * w, 2 * w), nn.MaxPool2d(2)),
        *(block(2 * w, 3 * w), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3 * w, classes)),
    )


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.n = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, 1 - 1 / (self.n + 1))
        torch._foreach_lerp_(list(self.module.parameters()), list(model.parameters()), 1 - d)
        for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)


def strong(x):
    x = x + 0.3 * torch.randn_like(x)
    return torch.roll(x, tuple(torch.randint(-3, 4, (2,)).tolist()), (2, 3))


def pictures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 6, (n,), generator=g)
    base = F.interpolate(torch.randn(6, 3, 6, 6, generator=torch.Generator().manual_seed(0)), size=24)
    return TensorDataset(base[y] + torch.randn(n, 3, 24, 24, generator=g), y)


def forever(loader):
    return itertools.chain.from_iterable(itertools.repeat(loader))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--rampup", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    labelled = forever(DataLoader(pictures(240, 1), 8, shuffle=True, drop_last=True))
    unlabelled = forever(DataLoader(pictures(1200, 2), 16, shuffle=True, drop_last=True))
    test = DataLoader(pictures(64, 3), 64)
    student = backbone()
    teacher = EMA(student, 0.99)
    optimizer = torch.optim.SGD(student.parameters(), 0.03, momentum=0.9, nesterov=True)
    for step in range(1, args.steps + 1):
        (x, y), (u, _) = next(labelled), next(unlabelled)
        with torch.no_grad():
            target = teacher.module(u).softmax(1)
        out = student(torch.cat([strong(x), strong(u)]))
        weight = 5 * math.exp(-5 * (1 - min(step / args.rampup, 1)) ** 2)
        loss = F.cross_entropy(out[: len(x)], y) + weight * F.mse_loss(out[len(x) :].softmax(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update(student)
        if step % 60 == 0:
            teacher.module.eval()
            with torch.no_grad():
                hits = sum((teacher.module(a).argmax(1) == b).sum().item() for a, b in test)
            teacher.module.train()
            print(f"step {step} loss {loss.item():.4f} teacher acc {hits / 64:.3f}")


if __name__ == "__main__":
    main()
