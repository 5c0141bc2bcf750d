"""Learns a room's impulse response and a tone control from dry and recorded sound, for a reverb effect.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RATE, LENGTH, TAIL = 8000, 8192, 1024


def true_room(seed):
    rng = np.random.default_rng(seed)
    room = rng.normal(size=TAIL) * np.exp(-np.arange(TAIL) / 350)
    room[:40] = 0
    room[0] = 4.0
    return torch.tensor(room / np.abs(room).sum() * 3, dtype=torch.float32)


class Plucks(IterableDataset):
    """Pairs of a dry passage of plucked notes and how it sounds in the room, without end, batch by batch."""

    def __init__(self, room, batch, seed):
        self.room, self.batch, self.seed = room, batch, seed

    def dry(self, random):
        time = torch.arange(LENGTH) / RATE
        start = torch.rand(self.batch, 4, 1, generator=random) * 0.8
        pitch = 110 * 2 ** (torch.randint(0, 25, (self.batch, 4, 1), generator=random) / 12)
        since = (time - start).clamp(min=0)
        return ((since * -9).exp() * torch.sin(6.2832 * pitch * since)).sum(1)

    def __iter__(self):
        random = torch.Generator().manual_seed(self.seed)
        while True:
            dry = self.dry(random)
            size = LENGTH + TAIL
            wet = torch.fft.irfft(torch.fft.rfft(dry, size) * torch.fft.rfft(self.room, size), size)[:, :LENGTH]
            yield dry, torch.tanh(1.5 * wet)


class Reverb(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.tone = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4), nn.Tanh(), nn.Conv1d(16, 1, 9, padding=4))
        self.response = nn.Parameter(0.01 * torch.randn(TAIL) * torch.exp(-torch.arange(TAIL) / 400))
        self.drive = nn.Parameter(torch.ones(()))

    def echo(self, x):
        if self.fixed:
            size = x.shape[-1] + TAIL
            spectrum = torch.fft.rfft(x, size) * torch.fft.rfft(self.response, size)
            return torch.fft.irfft(spectrum, size)[..., : x.shape[-1]]
        padded = F.pad(x, (TAIL - 1, 0))
        return F.conv1d(padded, self.response.flip(0)[None, None])  # guilty

    def forward(self, dry):
        x = dry[:, None]
        x = x + self.tone(x)
        wet = self.echo(x)  # guilty
        return torch.tanh(self.drive * (x + wet)).squeeze(1)


class SpectralLoss(nn.Module):
    def __init__(self, sizes=(128, 256, 512, 1024, 2048)):
        super().__init__()
        self.sizes = sizes
        for size in sizes:
            self.register_buffer(f"window_{size}", torch.hann_window(size))

    def magnitude(self, x, size):
        window = getattr(self, f"window_{size}")
        spectrum = torch.stft(x, size, size // 4, window=window, return_complex=True)
        return (spectrum.real.square() + spectrum.imag.square() + 1e-7).sqrt()

    def forward(self, guess, wanted):
        loss = 0.0
        for size in self.sizes:
            a, b = self.magnitude(guess, size), self.magnitude(wanted, size)
            loss = loss + (a - b).norm() / b.norm() + (a.log() - b.log()).abs().mean()
        return loss / len(self.sizes) + 5 * F.l1_loss(guess, wanted)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(2)
    loader = iter(DataLoader(Plucks(true_room(1), args.batch_size, 3), batch_size=None))
    model, criterion = Reverb(args.fixed), SpectralLoss()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(1, args.steps + 1):
        dry, wet = next(loader)
        loss = criterion(model(dry), wet)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
