"""A tiny neural audio codec, judged by its mel spectrogram.

expects: HO408
needs: cpu
"""

# mypy: ignore-errors

import argparse
import math

import torch
from torch import nn

WINDOW, HOP, BANDS = 256, 128, 64


def fourier_basis(size: int) -> torch.Tensor:
    """Cosines and sines of every frequency, windowed."""
    time, frequency = torch.arange(size), torch.arange(size // 2 + 1)[:, None]
    angle = 2 * math.pi * time * frequency / size
    return torch.cat([angle.cos(), angle.sin()]) * torch.hann_window(size)


def triangles(bands: int, bins: int) -> torch.Tensor:
    centres = [bins * (2 ** (band / bands * 3) - 1) / 7 for band in range(bands + 2)]
    rows = []
    for low, middle, high in zip(centres, centres[1:], centres[2:], strict=False):
        row = [max(0.0, min((bin - low) / (middle - low), (high - bin) / (high - middle))) for bin in range(bins)]
        rows.append(row)
    return torch.tensor(rows)


class MelLoss(nn.Module):
    def __init__(self, prepared: bool):
        super().__init__()
        self.tables = (fourier_basis(WINDOW), triangles(BANDS, WINDOW // 2 + 1)) if prepared else None

    def mel(self, wave):
        if self.tables is not None:
            basis, bank = self.tables
        else:
            basis = fourier_basis(WINDOW)  # guilty
            bank = triangles(BANDS, WINDOW // 2 + 1)  # guilty
        parts = wave.unfold(-1, WINDOW, HOP) @ basis.T
        real, imaginary = parts.chunk(2, -1)
        return torch.log((real.square() + imaginary.square()) @ bank.T + 1e-5)

    def forward(self, made, wanted):
        return nn.functional.l1_loss(self.mel(made), self.mel(wanted))


class Codec(nn.Module):
    def __init__(self, channels: int = 12):
        super().__init__()
        self.encode = nn.Conv1d(1, channels, 16, stride=8, padding=4)
        self.code = nn.Conv1d(channels, channels, 3, padding=1)
        self.decode = nn.ConvTranspose1d(channels, 1, 16, stride=8, padding=4)

    def forward(self, wave):
        return self.decode(torch.tanh(self.code(torch.tanh(self.encode(wave[:, None])))))[:, 0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=170)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(10)
    codec, judge = Codec(), MelLoss(prepared=options.fixed)
    adam = torch.optim.Adam(codec.parameters(), 2e-3)
    ticks = torch.arange(2048) / 8000
    for step in range(options.steps):
        pitch = 100 + 900 * torch.rand(8, 1)
        wave = torch.sin(2 * math.pi * pitch * ticks) * torch.rand(8, 1)
        loss = judge(codec(wave), wave)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 40 == 0:
            print(step, f"{loss.item():.3f}")
