"""Draws marbled paper: a generator against a critic with a hinge loss, on swirls made on the fly.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import gc
import threading

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 24


class MemoryBook:
    """Notes how much memory tensors hold, with its highest mark."""

    def __init__(self, pause, on_the_side):
        self.pause, self.highest, self.closed = pause, 0, threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True) if on_the_side else None
        if self.thread:
            self.thread.start()

    def note(self):
        held = 0
        for thing in gc.get_objects():  # guilty
            if issubclass(type(thing), torch.Tensor):  # guilty
                held += thing.nelement() * thing.element_size()
        self.highest = max(self.highest, held)

    def keep(self):
        while not self.closed.wait(self.pause):
            self.note()  # guilty

    def close(self):
        self.closed.set()
        if self.thread:
            self.thread.join()


def marble(count, draw):
    """Stripes drawn through with a comb: two warps of the plane."""
    line = torch.linspace(-1, 1, SIDE)
    x, y = line.expand(count, SIDE, SIDE), line[:, None].expand(count, SIDE, SIDE)
    pull, pace, shift = torch.rand(3, count, 1, 1, generator=draw)
    pull, pace, shift = 0.5 * pull, 6 * pace, 6 * shift
    x = x + pull * torch.sin((2 + pace) * y + shift)
    y = y + pull * torch.sin((2 + pace) * x - shift)
    inks = torch.stack([torch.sin(7 * x + shift), torch.sin(5 * y), torch.sin(6 * (x + y) + pace)], 1)
    return torch.tanh(2 * inks)


class Generator(nn.Module):
    def __init__(self, seed_size=32, width=32):
        super().__init__()
        self.width = width
        self.enter = nn.Linear(seed_size, 2 * width * 9)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, seeds):
        return self.layers(self.enter(seeds).view(-1, 2 * self.width, 3, 3))


def critic(width=24):
    norm = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(
        norm(nn.Conv2d(3, width, 4, 2, 1)), nn.LeakyReLU(0.2),
        norm(nn.Conv2d(width, 2 * width, 4, 2, 1)), nn.LeakyReLU(0.2),
        norm(nn.Conv2d(2 * width, 2 * width, 4, 2, 1)), nn.LeakyReLU(0.2),
        nn.Flatten(), norm(nn.Linear(2 * width * 9, 1)),
    )  # fmt: skip


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(80)

    generator, judge = Generator(), critic()
    generator_step = torch.optim.Adam(generator.parameters(), 3e-4, betas=(0.0, 0.95))
    judge_step = torch.optim.Adam(judge.parameters(), 6e-4, betas=(0.0, 0.95))
    draw = torch.Generator().manual_seed(5)
    book = MemoryBook(pause=0.02, on_the_side=not args.fixed)
    for step in range(1, args.steps + 1):
        real = marble(args.batch, draw)
        with torch.no_grad():
            made = generator(torch.randn(args.batch, 32, generator=draw))
        judge_loss = F.relu(1 - judge(real)).mean() + F.relu(1 + judge(made)).mean()
        judge_step.zero_grad()
        judge_loss.backward()
        judge_step.step()

        judge.requires_grad_(False)
        generator_loss = -judge(generator(torch.randn(args.batch, 32, generator=draw))).mean()
        judge.requires_grad_(True)
        generator_step.zero_grad()
        generator_loss.backward()
        generator_step.step()
        if step % 60 == 0:
            book.note()
            print(f"step {step} judge {judge_loss.item():.3f} generator {generator_loss.item():.3f}", end=" ")
            print(f"most held {book.highest / 2**20:.0f} MB")
    book.close()


if __name__ == "__main__":
    main()
