"""Recognises trees by their bark with few labels: a student follows a slowly moving teacher on unlabelled photographs.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

SIDE, SPECIES = 32, 8


def bark(labels, generator):
    """Oriented furrows whose pitch, lean and roughness depend on the species."""
    count = len(labels)
    ys, xs = torch.meshgrid(torch.arange(SIDE) / SIDE, torch.arange(SIDE) / SIDE, indexing="ij")
    pitch = (3 + 1.5 * (labels % 4))[:, None, None] * (1 + 0.1 * torch.randn(count, 1, 1, generator=generator))
    lean = (0.6 * (labels // 4) - 0.3)[:, None, None] + 0.1 * torch.randn(count, 1, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    furrows = torch.sin(2 * math.pi * pitch * (xs + lean * ys) + phase)
    paint = 0.4 + 0.2 * torch.rand(count, 3, 1, 1, generator=generator)
    light = paint * (1 + 0.5 * furrows[:, None])
    return (light + 0.12 * torch.randn(count, 3, SIDE, SIDE, generator=generator)).clamp(0, 1).mul(255).byte()


class Photographs(Dataset):
    """Indexed by a whole list of places, so that a batch is one gather."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(SPECIES, (count,), generator=generator)
        self.photos = bark(self.labels, generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, places):
        return self.photos[places].float().div(127.5).sub(1), self.labels[places]


def batches(dataset, batch):
    sampler = BatchSampler(RandomSampler(dataset), batch, drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    while True:
        yield from loader


def shake(photos, strength):
    """Brightness, contrast, grain and a flip, different for each photograph."""
    count = len(photos)
    gain = 1 + strength * (torch.rand(count, 1, 1, 1) - 0.5)
    offset = strength * (torch.rand(count, 1, 1, 1) - 0.5)
    photos = torch.where(torch.rand(count, 1, 1, 1) < 0.5, photos.flip(2), photos)
    return photos * gain + offset + 0.1 * strength * torch.randn_like(photos)


class Residual(nn.Module):
    def __init__(self, width, stride=1, narrow=None):
        super().__init__()
        narrow = narrow or width
        self.body = nn.Sequential(
            nn.Conv2d(narrow, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.skip = nn.Identity() if narrow == width else nn.Conv2d(narrow, width, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def network(width=20):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), Residual(width), Residual(2 * width, 2, width), Residual(2 * width),
        Residual(3 * width, 2, 2 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3 * width, SPECIES),
    )  # fmt: skip


class MeanTeacher:
    """Its weights are the running mean of the student's; it sees a weaker distortion."""

    def __init__(self, student, keep=0.97):
        self.keep = keep
        self.model = copy.deepcopy(student).requires_grad_(False)

    @torch.no_grad()
    def targets(self, photos, sharpness=2.0):
        return (sharpness * self.model(shake(photos, 0.1))).softmax(1)

    @torch.no_grad()
    def follow(self, student):
        torch._foreach_lerp_(list(self.model.parameters()), list(student.parameters()), 1 - self.keep)


@torch.no_grad()
def share_right(model, held):
    model.eval()
    photos, labels = held[torch.arange(len(held))]
    right = (model(photos).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    cli.add_argument("--accumulate", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(29)

    labelled, unlabelled, held = Photographs(320, 90), Photographs(6000, 91), Photographs(200, 92)
    student = network()
    teacher = MeanTeacher(student)
    optimizer = torch.optim.SGD(student.parameters(), 0.03, momentum=0.9, nesterov=True, weight_decay=5e-4)
    pairs = zip(batches(labelled, args.batch), batches(unlabelled, 2 * args.batch))
    known_mean = follow_mean = 0.0
    for step in range(1, args.steps + 1):
        ramp = min(1.0, step / 60)
        optimizer.zero_grad()
        for _ in range(args.accumulate):
            (photos, labels), (more, _) = next(pairs)
            soft = teacher.targets(more)
            answer = student(shake(torch.cat([photos, more]), 0.5))
            known = F.cross_entropy(answer[: len(photos)], labels)
            follow = F.cross_entropy(answer[len(photos) :], soft)
            ((known + ramp * follow) / args.accumulate).backward()
        optimizer.step()
        teacher.follow(student)
        known_mean += max(0.05, 1 / step) * (known.item() - known_mean)
        follow_mean += max(0.05, 1 / step) * (follow.item() - follow_mean)
        if step % 25 == 0 or step == args.steps:
            print(f"step {step} known {known_mean:.4f} follow {follow_mean:.4f} held {share_right(student, held):.3f}")


if __name__ == "__main__":
    main()
