"""Tells wading birds apart by their gait on short mudflat clips: frame CNN and a recurrent cell that keeps its norm.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

FRAMES, SIDE, SPECIES = 16, 32, 5


def clip(rng, species):
    """A body that walks, runs, probes, circles or rests; filmed by a shaking camera."""
    ys, xs = np.mgrid[:SIDE, :SIDE]
    start, heading, phase = rng.uniform(8, 24, 2), rng.choice([-1, 1]), rng.uniform(0, 6.28)
    frames = []
    for moment in range(FRAMES):
        y, x = start
        if species == 0:
            x = x + heading * 0.5 * moment
        elif species == 1:
            x = x + heading * 4.0 * (moment % 8 > 4) * (moment % 4)
        elif species == 2:
            y = y + 3.0 * np.sin(1.6 * moment + phase)
        elif species == 3:
            y, x = y + 5 * np.sin(0.5 * moment + phase), x + 5 * np.cos(0.5 * moment + phase)
        dy, dx = rng.normal(0, 0.4, 2)
        body = np.exp(-(((ys - y - dy) / 2.0) ** 2 + ((xs - x % SIDE - dx) / 3.2) ** 2))
        frames.append(0.35 + 0.5 * body + rng.normal(0, 0.08, body.shape))
    return (np.stack(frames).clip(0, 1) * 255).astype(np.uint8)


class Clips:
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        species = rng.integers(0, SPECIES, count)
        self.frames = torch.from_numpy(np.stack([clip(rng, kind) for kind in species]))
        self.species = torch.from_numpy(species)

    def batches(self, size, generator=None):
        count = len(self.species)
        order = torch.randperm(count, generator=generator) if generator else torch.arange(count)
        for places in order.split(size):
            yield self.frames[places].unsqueeze(2).float().div_(255).sub_(0.4), self.species[places]


class FrameEncoder(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.Conv2d(1, 12, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(24, 24, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(24 * 16, width),
        )


class SteadyCell(nn.Module):
    """h' = modrelu(Q h + W x) with an orthogonal Q: gradients neither vanish nor explode."""

    def __init__(self, width):
        super().__init__()
        self.carry = orthogonal(nn.Linear(width, width, bias=False))  # guilty
        self.intake = nn.Linear(width, width, bias=False)
        self.threshold = nn.Parameter(torch.full((width,), -0.01))

    def forward(self, x, state):
        raw = self.carry(state) + self.intake(x)  # guilty
        return torch.sign(raw) * F.relu(raw.abs() + self.threshold)


class GaitNet(nn.Module):
    def __init__(self, width=80, scope=contextlib.nullcontext):
        super().__init__()
        self.encoder, self.cell = FrameEncoder(width), SteadyCell(width)
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, SPECIES))
        self.width, self.scope = width, scope

    def forward(self, clips):
        batch, length = clips.shape[:2]
        codes = self.encoder(clips.flatten(0, 1)).view(batch, length, self.width)
        state, total = clips.new_zeros(batch, self.width), 0
        with self.scope():  # guilty
            for moment in range(length):
                state = self.cell(codes[:, moment], state)  # guilty
                total = total + state
        return self.head(torch.cat([state, total / length], 1))


@torch.no_grad()
def accuracy(model, clips):
    model.eval()
    right = sum((model(frames).argmax(1) == species).sum().item() for frames, species in clips.batches(60))
    model.train()
    return right / len(clips.species)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(3)

    training, held = Clips(640, seed=1), Clips(60, seed=2)
    model = GaitNet(scope=parametrize.cached if args.fixed else contextlib.nullcontext)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=args.steps + 1)
    generator = torch.Generator().manual_seed(5)
    step, began, running = 0, time.perf_counter(), 0.0
    while step < args.steps:
        for frames, species in training.batches(args.batch, generator):
            loss = F.cross_entropy(model(frames), species, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            running = loss.item() if step == 1 else 0.95 * running + 0.05 * loss.item()
            if step == args.steps:
                break
        pace = (time.perf_counter() - began) / step
        print(f"step {step} loss {running:.3f} held-out accuracy {accuracy(model, held):.3f} {1000 * pace:.0f} ms/step")


if __name__ == "__main__":
    main()
