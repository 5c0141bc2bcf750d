"""Names lichens on few labelled and many unlabelled photographs: mean teacher, two loaders, residual network.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES, SIZE = 8, 32


def photographs(count, seed):
    """Round thalli on rock: species differ in colour, rim, lobes and spots."""
    rng = np.random.default_rng(seed)
    looks = np.random.default_rng(0)
    colour, rim = looks.uniform(0.2, 0.9, (SPECIES, 3)), looks.uniform(-0.4, 0.4, SPECIES)
    lobes, spots = looks.integers(3, 10, SPECIES), looks.uniform(10, 40, SPECIES)
    species = rng.integers(0, SPECIES, count)
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    cx, cy, turn = (rng.uniform(-bound, bound, (count, 1, 1)) for bound in (0.3, 0.3, 3))
    angle, away = np.arctan2(y - cy, x - cx), np.hypot(y - cy, x - cx)
    edge = rng.uniform(0.5, 0.7, (count, 1, 1)) * (1 + 0.15 * np.sin(lobes[species][:, None, None] * angle + turn))
    body = 1 / (1 + np.exp(20 * (away - edge)))
    ring = rim[species][:, None, None] * np.exp(-(((away - edge) / 0.08) ** 2))
    grain = 0.12 * np.sin(spots[species][:, None, None] * x + turn) * np.sin(spots[species][:, None, None] * y)
    shade = colour[species][:, :, None, None] + (ring + grain)[:, None]
    images = body[:, None] * shade + (1 - body[:, None]) * 0.5 + rng.normal(0, 0.12, (count, 3, SIZE, SIZE))
    return torch.from_numpy((images * 2 - 1).astype(np.float32)), torch.from_numpy(species)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.skip(x) + self.norms[1](self.second(h)))


def network(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, SPECIES),
    )


class MeanTeacher:
    def __init__(self, student, decay=0.98):
        self.student, self.decay = student, decay
        self.model = copy.deepcopy(student).requires_grad_(False)
        self.pairs = list(self.model.parameters()), list(student.parameters())
        self.buffers = list(zip(self.model.buffers(), student.buffers()))

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(*self.pairs, 1 - self.decay)
        for own, other in self.buffers:
            own.copy_(other)

    @torch.no_grad()
    def say(self, images):
        return self.model(images).softmax(1)


def disturb(images):
    """Mirrored or not, shifted and noisy: drawn once for the batch, noise for each image."""
    if torch.rand(()) < 0.5:
        images = images.flip(3)
    down, right = torch.randint(-3, 4, (2,)).tolist()
    return images.roll((down, right), (2, 3)) + 0.1 * torch.randn_like(images)


def forever(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=170)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--consistency", type=float, default=8.0)
    args = cli.parse_args()
    torch.manual_seed(33)

    few, many = photographs(160, seed=1), photographs(2000, seed=2)
    test_images, test_species = photographs(160, seed=3)
    labelled = forever(DataLoader(TensorDataset(*few), batch_size=16, shuffle=True, drop_last=True))
    unlabelled = forever(DataLoader(TensorDataset(many[0]), batch_size=32, shuffle=True, drop_last=True))
    student = network()
    teacher = MeanTeacher(student)
    optimizer = torch.optim.SGD(student.parameters(), 0.04, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    for step in range(1, args.steps + 1):
        (images, species), (unknown,) = next(labelled), next(unlabelled)
        wanted = teacher.say(disturb(unknown))
        said = student(torch.cat([disturb(images), disturb(unknown)]))
        supervised = F.cross_entropy(said[: len(images)], species)
        agreement = F.mse_loss(said[len(images) :].softmax(1), wanted)
        ramp = math.exp(-5 * (1 - min(step / 60, 1)) ** 2)
        loss = supervised + args.consistency * ramp * agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        teacher.follow()
        if step % 40 == 0 or step == args.steps:
            teacher.model.eval()
            right = (teacher.say(test_images).argmax(1) == test_species).float().mean().item()
            teacher.model.train()
            print(f"step {step} supervised {supervised:.3f} agreement {agreement:.4f} teacher accuracy {right:.3f}")


if __name__ == "__main__":
    main()
