"""Semi-supervised classification of stars from folded light curves: few labels, a large unlabelled survey.

expects: IN106
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, KINDS = 48, 5


def fold(kind, phase, rng):
    shift = rng.random((len(kind), 1), dtype=np.float32)
    turn = (phase + shift) % 1.0
    depth = 0.5 + rng.random((len(kind), 1), dtype=np.float32)
    shapes = np.stack(
        [
            np.sin(2 * np.pi * turn),
            np.abs(turn - 0.5) * 4 - 1,
            -np.exp(-((turn - 0.5) ** 2) / 0.005),
            -np.abs(np.sin(2 * np.pi * turn)),
            turn * 2 - 1,
        ]
    )
    return depth * shapes[kind, np.arange(len(kind))]


class Survey(Dataset):
    def __init__(self, count, seed, labelled):
        rng = np.random.default_rng(seed)
        phase = np.linspace(0, 1, POINTS, dtype=np.float32)[None]
        templates = 4000
        kind = rng.integers(KINDS, size=templates)
        curves = fold(kind, phase, rng).astype(np.float32)
        picks = rng.integers(templates, size=count)
        self.curves, self.kinds = torch.from_numpy(curves[picks]), torch.from_numpy(kind[picks])
        self.labelled = labelled

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, index):
        if self.labelled:
            return self.curves[index], self.kinds[index]
        return self.curves[index]


class CurveNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 5, padding=2, padding_mode="circular"),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2, padding_mode="circular"),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width, KINDS)

    def forward(self, curves):
        return self.head(self.body(curves[:, None]))


def weak(curves):
    return torch.roll(curves, int(torch.randint(POINTS, ())), dims=1) + 0.05 * torch.randn_like(curves)


def strong(curves):
    curves = weak(curves) * (0.7 + 0.6 * torch.rand(len(curves), 1))
    return curves * (torch.rand_like(curves) > 0.2) + 0.2 * torch.randn_like(curves)


def endless(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--labelled-batch", type=int, default=16)
    cli.add_argument("--survey-batch", type=int, default=64)
    args = cli.parse_args()
    torch.manual_seed(9)

    labelled = DataLoader(Survey(800, 1, True), args.labelled_batch, shuffle=True, drop_last=True)
    survey = DataLoader(Survey(400_000, 2, False), args.survey_batch, shuffle=True, drop_last=True)
    model = CurveNet()
    teacher = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with_labels, without = endless(labelled), endless(survey)

    for step in range(1, args.steps + 1):
        curves, kinds = next(with_labels)
        if args.fixed:
            unlabelled = next(without)
        else:
            unlabelled = next(iter(survey))  # guilty
        with torch.no_grad():
            belief = teacher(weak(unlabelled)).softmax(1)
        sure, guess = belief.max(1)
        logits = model(torch.cat([weak(curves), strong(unlabelled)]))
        known, unknown = logits.split([len(curves), len(unlabelled)])
        consistency = (F.cross_entropy(unknown, guess, reduction="none") * (sure > 0.8)).mean()
        loss = F.cross_entropy(known, kinds) + consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(model.parameters()), 0.01)
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} sure {(sure > 0.8).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
