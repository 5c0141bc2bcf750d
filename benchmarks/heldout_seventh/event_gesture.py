"""Recognises hand gestures from an event camera, online: many streams, one step for each slice of time.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE, STREAMS, GESTURES, SLICES = 48, 24, 6, 4


class Streams:
    """A hand moves along a curve of its gesture and raises events; single pixels fire now and then by themselves."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.gesture = torch.randint(GESTURES, (STREAMS,), generator=self.random)
        self.phase = 6.28 * torch.rand(STREAMS, generator=self.random)
        self.grid = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))

    def change(self):
        new = torch.rand(STREAMS, generator=self.random) < 0.002
        other = torch.randint(GESTURES, (STREAMS,), generator=self.random)
        self.gesture = torch.where(new, other, self.gesture)

    def next(self):
        self.change()
        self.phase = self.phase + 0.02 * (1 + self.gesture % 3)
        turn = torch.where(self.gesture < 3, 1.0, 2.0)
        place = torch.stack([torch.sin(self.phase), torch.cos(turn * self.phase)], 1) * SIDE / 4 + SIDE / 2
        near = (self.grid - place[:, :, None, None]).square().sum(1) < 9
        fired = near & (torch.rand(near.shape, generator=self.random) < 0.4)
        noise = torch.rand(near.shape, generator=self.random) < 0.002
        polarity = (torch.rand(near.shape, generator=self.random) < 0.5) & (fired | noise)
        return torch.stack([polarity, (fired | noise) & ~polarity], 1).float()


class Surface:
    """How long ago each pixel fired: an exponential memory, separately for both polarities."""

    def __init__(self, keep=0.65):
        self.keep = keep
        self.memory = torch.zeros(STREAMS, 2, SIDE, SIDE)

    def add(self, events):
        self.memory.mul_(self.keep).add_(events)  # guilty
        return self.memory


class GestureNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, width, 5, 2, 2),  # guilty
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 1, 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 3 * width, 3, 2, 1),
            nn.BatchNorm2d(3 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(12 * width, GESTURES),
        )

    def forward(self, x):
        return self.net(x)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    if args.fixed:
        torch.set_flush_denormal(True)
    torch.manual_seed(5)
    streams, surface = Streams(8), Surface()
    for _ in range(250):  # so that the memory holds something before the first step
        surface.add(streams.next())
    net = GestureNet()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    right = 0.0
    for step in range(1, args.steps + 1):
        for _ in range(SLICES):
            seen = surface.add(streams.next())  # guilty
        logits = net(seen)  # guilty
        loss = F.cross_entropy(logits, streams.gesture)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        right = 0.95 * right + 0.05 * (logits.argmax(1) == streams.gesture).float().mean().item()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} right {right:.3f}")


if __name__ == "__main__":
    main()
