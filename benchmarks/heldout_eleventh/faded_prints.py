"""Restores faded photographic prints: a small network that corrects gain and shift of every pixel.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 80


def make_prints(count, seed):
    """Smooth colour fields with sharp-edged shapes on them."""
    draw = torch.Generator().manual_seed(seed)
    fields = F.interpolate(torch.rand(count, 3, 5, 5, generator=draw), SIDE, mode="bicubic", align_corners=False)
    line = torch.linspace(-1, 1, SIDE)
    for _ in range(5):
        x, y, turn, wide = torch.rand(4, count, 1, 1, generator=draw)
        across = (line - 2 * x + 1) * torch.cos(6 * turn) + (line[:, None] - 2 * y + 1) * torch.sin(6 * turn)
        along = (line[:, None] - 2 * y + 1) * torch.cos(6 * turn) - (line - 2 * x + 1) * torch.sin(6 * turn)
        shape = (across.abs() < 0.1 + 0.3 * wide) & (along.abs() < 0.4)
        fields = torch.where(shape[:, None], torch.rand(count, 3, 1, 1, generator=draw), fields)
    return fields.clamp(0, 1)


def fade(prints, draw):
    """Loses contrast, turns yellow and gathers grain."""
    left = 0.4 + 0.4 * torch.rand(len(prints), 1, 1, 1, generator=draw)
    yellow = torch.tensor([0.75, 0.68, 0.5]).view(3, 1, 1)
    return left * prints + (1 - left) * yellow + 0.04 * torch.randn(prints.shape, generator=draw)


def likeness(one, two):
    """Closeness in tone and, from pixel to pixel, in change."""
    tone = F.l1_loss(one, two)
    across = F.l1_loss(one.diff(dim=3), two.diff(dim=3))
    down = F.l1_loss(one.diff(dim=2), two.diff(dim=2))
    return tone + 0.5 * (across + down)


class Restorer(nn.Module):
    """Works at a quarter of the size and adds a smooth correction of each colour to the print."""

    def __init__(self, width=64, late=False):
        super().__init__()
        self.late = late
        self.enter = nn.Conv2d(48, width, 1)
        self.work = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, padding=1)
        )
        self.leave = nn.Conv2d(width, 6, 1)

    def forward(self, prints):
        state = self.enter(F.pixel_unshuffle(prints, 4))
        state = F.relu(state + self.work(state))
        if self.late:
            change = F.interpolate(self.leave(state), scale_factor=4, mode="bilinear", align_corners=False)
        else:
            change = self.leave(F.interpolate(state, scale_factor=4, mode="bilinear", align_corners=False))  # guilty
        gain, shift = change.chunk(2, dim=1)
        return prints * (1 + gain) + shift


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=12)
    args = cli.parse_args()
    torch.manual_seed(40)

    prints, held = make_prints(600, seed=1), make_prints(16, seed=2)
    draw = torch.Generator().manual_seed(3)
    held_faded = fade(held, draw)
    model = Restorer(late=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(1, args.steps + 1):
        wanted = prints[torch.randint(0, len(prints), (args.batch,), generator=draw)]
        restored = model(fade(wanted, draw))  # guilty
        loss = likeness(restored, wanted)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        if step % 50 == 0:
            with torch.no_grad():
                again = model(held_faded)
            noise = 10 * math.log10(1 / F.mse_loss(again, held).item())
            print(f"step {step} loss {loss.item():.4f} held out {likeness(again, held).item():.4f} psnr {noise:.2f}")


if __name__ == "__main__":
    main()
