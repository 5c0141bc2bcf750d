"""Forecasts the power of a wind farm from long anemometer records with a stack of global convolutions.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    length: int = 4096
    channels: int = 16
    depth: int = 2
    batch: int = 8
    modes: int = 12
    horizon: int = 24
    lr: float = 2e-3
    seed: int = 3
    report_every: int = 25


class Farm:
    """Keeps a few years of synthetic wind in memory and cuts windows from it."""

    def __init__(self, config, hours=200_000):
        self.config = config
        draw = torch.Generator().manual_seed(config.seed)
        clock = torch.arange(hours, dtype=torch.float32)
        gusts = torch.randn(hours, generator=draw)
        kernel = torch.exp(-torch.arange(64, dtype=torch.float32) / 12.0)
        gusts = F.conv1d(gusts[None, None], kernel[None, None] / kernel.norm(), padding=32)[0, 0, :hours]
        self.speed = 8 + 2 * (2 * math.pi * clock / 24).sin() + (2 * math.pi * clock / 700).cos() + 1.5 * gusts
        self.speed.clamp_(min=0)
        self.heading = (clock / 90).sin() + 0.1 * torch.randn(hours, generator=draw)
        self.power = ((self.speed / 12) ** 3).clamp(max=1.0)
        self.draw = draw

    def windows(self):
        config = self.config
        last = len(self.speed) - config.length - config.horizon
        while True:
            starts = torch.randint(last, (config.batch, 1), generator=self.draw)
            past = starts + torch.arange(config.length)
            coming = starts + config.length + torch.arange(config.horizon)
            seen = torch.stack([self.speed[past] / 8 - 1, self.heading[past], self.power[past]], 1)
            yield seen, self.power[coming]


class GlobalConv(nn.Module):
    """A causal convolution as long as the record; its kernel is a sum of damped waves."""

    def __init__(self, channels, length, modes, size):
        super().__init__()
        self.length, self.size = length, size
        self.decay = nn.Parameter(torch.linspace(-7, -1, modes).repeat(channels, 1))
        self.pitch = nn.Parameter(torch.rand(channels, modes) * 0.5)
        self.gain = nn.Parameter(torch.randn(channels, modes) / modes)
        self.skip = nn.Parameter(torch.ones(channels))
        self.register_buffer("lag", torch.arange(length, dtype=torch.float32))

    def kernel(self):
        damp = self.decay.exp()[..., None] * self.lag
        wave = (self.pitch[..., None] * self.lag).cos()
        return (self.gain[..., None] * (-damp).exp() * wave).sum(1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x, n=self.size)  # guilty
        response = torch.fft.rfft(self.kernel(), n=self.size)  # guilty
        mixed = torch.fft.irfft(spectrum * response, n=self.size)  # guilty
        return mixed[..., : self.length] + self.skip[:, None] * x


class Block(nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.norm = nn.GroupNorm(1, config.channels)
        self.conv = GlobalConv(config.channels, config.length, config.modes, size)
        self.mix = nn.Conv1d(config.channels, config.channels, 1)

    def forward(self, x):
        return x + self.mix(F.relu(self.conv(self.norm(x))))


class Forecaster(nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.lift = nn.Conv1d(3, config.channels, 1)
        self.blocks = nn.ModuleList([Block(config, size) for _ in range(config.depth)])
        self.out = nn.Linear(config.channels, config.horizon)

    def forward(self, seen):
        x = self.lift(seen)
        for block in self.blocks:
            x = block(x)
        return self.out(x[..., -96:].mean(-1))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=75)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=Config.length)
    args = cli.parse_args()
    config = Config(length=args.length)
    torch.manual_seed(config.seed)
    size = 2 * config.length - 1  # guilty
    if args.fixed:
        size += 1
    model = Forecaster(config, size)
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    windows = Farm(config).windows()
    running = torch.zeros(())
    for step in range(1, args.steps + 1):
        seen, wanted = next(windows)
        loss = F.huber_loss(model(seen), wanted, delta=0.3)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running += loss.detach()
        if step % config.report_every == 0:
            print(f"step {step} loss {running.item() / config.report_every:.4f} lr {schedule.get_last_lr()[0]:.5f}")
            running.zero_()


if __name__ == "__main__":
    main()
