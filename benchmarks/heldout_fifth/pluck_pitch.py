"""A pitch network on plucked strings, which are synthesised once and mixed into chords in every step.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, SAMPLES, NOTES = 8000, 8000, 24


def make_plucks(n, seed, fixed):
    """Decaying tones with five partials; higher partials fade sooner."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(SAMPLES) / RATE
    note = torch.randint(0, NOTES, (n,), generator=g)
    freq = 110.0 * 2 ** (note / 12)
    fade = 75.0 + 60.0 * torch.rand(n, generator=g)
    wave = torch.zeros(n, SAMPLES)
    for k in range(1, 6):
        phase = 2 * math.pi * torch.rand(n, 1, generator=g)
        tone = torch.sin(2 * math.pi * k * freq[:, None] * t + phase) / k
        wave += tone * torch.exp(-fade[:, None] * (1 + 0.1 * k) * t)  # guilty
    if fixed:
        wave[wave.abs() < 1e-20] = 0.0
    return wave, note


class FrontEnd(nn.Module):
    """Learned filters over frames of the wave."""

    def __init__(self, filters=64, frame=256, hop=128):
        super().__init__()
        self.filters = nn.Conv1d(1, filters, frame, hop, bias=False)

    def forward(self, wave):
        return torch.log1p(self.filters(wave.unsqueeze(1)).square() * 100)  # guilty


class PitchNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.front = FrontEnd(width)
        self.body = nn.Sequential(
            nn.Conv1d(width, 2 * width, 5, 1, 2),
            nn.GroupNorm(8, 2 * width),
            nn.GELU(),
            nn.Conv1d(2 * width, 2 * width, 5, 1, 2),
            nn.GroupNorm(8, 2 * width),
            nn.GELU(),
            nn.Conv1d(2 * width, 2 * width, 3, 2, 1),
            nn.GELU(),
        )
        self.out = nn.Linear(2 * width, NOTES)

    def forward(self, wave):
        return self.out(self.body(self.front(wave)).amax(2))


def chords(waves, notes, batch, voices, g):
    rows = torch.randint(0, len(waves), (batch, voices), generator=g)
    gain = 0.5 + torch.rand(batch, voices, 1, generator=g)
    target = torch.zeros(batch, NOTES).scatter_(1, notes[rows], 1.0)
    return (gain * waves[rows]).sum(1), target  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(17)
    waves, notes = make_plucks(600, 4, args.fixed)
    model = PitchNet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    g = torch.Generator().manual_seed(6)
    for step in range(1, args.steps + 1):
        wave, target = chords(waves, notes, args.batch, 3, g)
        logits = model(wave)  # guilty
        loss = F.binary_cross_entropy_with_logits(logits, target)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        decay.step()
        if step % 50 == 0:
            top = logits.topk(3, 1).indices
            found = target.gather(1, top).sum().item() / target.sum().item()
            print(f"step {step} loss {loss.item():.4f} found {found:.3f}")


if __name__ == "__main__":
    main()
