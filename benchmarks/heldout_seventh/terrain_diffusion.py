"""A denoising diffusion model of height maps, with a moving average of the weights and preview sheets.

expects: CA601, CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

SIDE, LEVELS = 16, 100


def make_terrain(count, seed):
    g = torch.Generator().manual_seed(seed)
    height = torch.zeros(count, 1, SIDE, SIDE)
    for octave in (2, 4, 8):
        noise = torch.randn(count, 1, octave, octave, generator=g) / octave
        height += F.interpolate(noise, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    return (height * 2).clamp(-1, 1)


class Block(nn.Module):
    def __init__(self, narrow, wide, embed):
        super().__init__()
        self.one, self.two = nn.Conv2d(narrow, wide, 3, padding=1), nn.Conv2d(wide, wide, 3, padding=1)
        self.norm = nn.GroupNorm(4, wide)
        self.shift = nn.Linear(embed, wide)
        self.skip = nn.Conv2d(narrow, wide, 1) if narrow != wide else nn.Identity()

    def forward(self, x, when):
        y = self.norm(F.silu(self.one(x))) + self.shift(when)[:, :, None, None]
        return self.skip(x) + F.silu(self.two(y))


class TinyUNet(nn.Module):
    def __init__(self, width=32, embed=64):
        super().__init__()
        self.register_buffer("waves", torch.exp(-math.log(1000) * torch.arange(embed // 2) / (embed // 2)))
        self.when = nn.Sequential(nn.Linear(embed, embed), nn.SiLU(), nn.Linear(embed, embed))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = Block(width, width, embed)
        self.middle = Block(width, 2 * width, embed)
        self.up = Block(3 * width, width, embed)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, level):
        angle = level[:, None] * self.waves
        when = self.when(torch.cat([angle.sin(), angle.cos()], 1))
        fine = self.down(self.enter(x), when)
        coarse = self.middle(F.avg_pool2d(fine, 2), when)
        joined = torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1)
        return self.leave(self.up(joined, when))


class Diffusion:
    def __init__(self):
        beta = torch.linspace(1e-3, 0.08, LEVELS)
        self.beta, self.alpha = beta, 1 - beta
        self.kept = torch.cumprod(self.alpha, 0)

    def loss(self, model, clean):
        level = torch.randint(LEVELS, (len(clean),))
        kept = self.kept[level].view(-1, 1, 1, 1)
        noise = torch.randn_like(clean)
        return F.mse_loss(model(kept.sqrt() * clean + (1 - kept).sqrt() * noise, level), noise)

    @torch.no_grad()
    def sample(self, model, count):
        x = torch.randn(count, 1, SIDE, SIDE)
        for t in reversed(range(LEVELS)):
            noise = model(x, torch.full((count,), t))  # guilty
            x = (x - self.beta[t] / (1 - self.kept[t]).sqrt() * noise) / self.alpha[t].sqrt()
            if t > 0:
                x = x + self.beta[t].sqrt() * torch.randn_like(x)
        return x


def save_sheet(tiles, path, columns=3):
    rows = [torch.cat(list(row[:, 0]), 1) for row in tiles.split(columns)]
    sheet = ((torch.cat(rows).clamp(-1, 1) + 1) * 127.5).byte()
    Image.fromarray(sheet.numpy()).save(path)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    cli.add_argument("--preview", type=int, default=20, help="optimizer steps between two preview sheets")
    args = cli.parse_args()
    if args.fixed:
        args.preview *= 10
    torch.manual_seed(5)

    terrain, diffusion = make_terrain(3000, 8), Diffusion()
    model = TinyUNet()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, args.steps + 1):
            loss = diffusion.loss(model, terrain[torch.randint(len(terrain), (args.batch_size,))])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.02)
            if step % args.preview == 0:
                tiles = diffusion.sample(average, 9)  # guilty
                save_sheet(tiles, Path(folder) / f"{step:06d}.png")
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
