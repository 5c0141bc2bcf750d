"""Modelling of an analog synthesizer's ladder filter: a small convolutional front end and a nonlinear recursion.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def dry_signal(batch, length, generator):
    """Sawtooth tones of random pitch with a random envelope."""
    pitch = 0.01 + 0.09 * torch.rand(batch, 1, generator=generator)
    phase = torch.rand(batch, 1, generator=generator)
    saw = 2 * ((pitch * torch.arange(length) + phase) % 1.0) - 1
    decay = 6.0 * torch.rand(batch, 1, generator=generator)
    return saw * torch.exp(-decay * torch.linspace(0, 1, length))


@torch.no_grad()
def analog(signal, cutoff=0.35, resonance=1.2):
    """The device that is to be imitated: four saturating stages and a feedback."""
    stages, out = [torch.zeros(len(signal)) for _ in range(4)], []
    for sample in signal.unbind(1):
        drive = sample - resonance * stages[3]
        for index in range(4):
            stages[index] = stages[index] + cutoff * (torch.tanh(drive) - torch.tanh(stages[index]))
            drive = stages[index]
        out.append(drive)
    return torch.stack(out, 1)


class LadderModel(nn.Module):
    """A bank of saturating leaky integrators, driven by a convolution of the input."""

    def __init__(self, bands, taps, fixed):
        super().__init__()
        self.fixed, self.taps = fixed, taps
        self.front = nn.Conv1d(1, bands, taps)
        self.cutoff = nn.Parameter(torch.linspace(-2.0, 2.0, bands))
        self.mix = nn.Sequential(nn.Conv1d(bands, bands, 1), nn.Tanh(), nn.Conv1d(bands, 1, 1))

    def recursion(self, drive):
        gain = self.cutoff.sigmoid()
        state, states = drive.new_zeros(drive.shape[:2]), []
        if self.fixed:
            for sample in drive.unbind(2):
                state = torch.lerp(torch.tanh(state), sample, gain)
                states.append(state)
        else:
            for t in range(drive.shape[2]):
                state = torch.lerp(torch.tanh(state), drive[:, :, t], gain)  # guilty
                states.append(state)
        return torch.stack(states, 2)

    def forward(self, signal):
        drive = self.front(F.pad(signal.unsqueeze(1), (self.taps - 1, 0)))
        return self.mix(self.recursion(drive)).squeeze(1)


def spectral_distance(a, b, sizes=(32, 64, 128)):
    """The mean distance between the magnitudes of short-time spectra at several resolutions."""
    total = 0.0
    for size in sizes:
        window = torch.hann_window(size)
        spectra = [torch.stft(x, size, size // 2, window=window, return_complex=True) for x in (a, b)]
        total = total + F.l1_loss(spectra[0].abs(), spectra[1].abs()) / math.sqrt(size)
    return total / len(sizes)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=384)
    args = cli.parse_args()
    torch.manual_seed(17)
    generator = torch.Generator().manual_seed(18)
    dry = dry_signal(256, args.length, generator)
    wet = analog(dry)
    model = LadderModel(bands=32, taps=16, fixed=args.fixed)
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(dry), (12,), generator=generator)

        def closure():
            optimizer.zero_grad()
            made = model(dry[rows])
            loss = F.mse_loss(made, wet[rows]) + 0.1 * spectral_distance(made, wet[rows])
            loss.backward()  # guilty
            return loss

        loss = optimizer.step(closure)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
