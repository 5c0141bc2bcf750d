"""A denoising diffusion model of handwriting-like strokes, with accumulation, averaged weights and samples.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

POINTS, TIMES = 32, 200


def strokes(n, generator):
    """Closed curves from a few random harmonics, as rows of x and y."""
    t = torch.linspace(0, 2 * math.pi, POINTS)
    waves = torch.stack([f(k * t) for k in (1, 2, 3) for f in (torch.sin, torch.cos)])
    weight = torch.randn(n, 2, 6, generator=generator) / torch.tensor([1, 1, 2, 2, 4, 4])
    return weight @ waves


class Schedule:
    def __init__(self):
        t = torch.arange(TIMES + 1) / TIMES
        kept = torch.cos((t + 0.01) / 1.01 * math.pi / 2).square()
        self.beta = (1 - kept[1:] / kept[:-1]).clamp(max=0.99)
        self.alpha = 1 - self.beta
        self.kept = self.alpha.cumprod(0)

    def noisy(self, x, noise, t):
        kept = self.kept[t].view(-1, 1, 1)
        return kept.sqrt() * x + (1 - kept).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, n, generator, stride=10):
        """Deterministic sampling that visits every tenth time."""
        x = torch.randn(n, 2, POINTS, generator=generator)
        times = list(range(TIMES - 1, -1, -stride))
        for t, after in zip(times, [*times[1:], -1], strict=False):
            noise = model(x, torch.full((n,), t))
            clean = (x - (1 - self.kept[t]).sqrt() * noise) / self.kept[t].sqrt()
            kept = self.kept[after] if after >= 0 else torch.ones(())
            x = kept.sqrt() * clean.clamp(-4, 4) + (1 - kept).sqrt() * noise
        return x


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation, padding_mode="circular")
        self.time = nn.Linear(width, 2 * width)
        self.conv2 = nn.Conv1d(width, width, 1)

    def forward(self, x, time):
        scale, shift = self.time(time).unsqueeze(2).chunk(2, 1)
        h = self.conv1(F.silu(self.norm(x)))
        return x + self.conv2(F.dropout(F.silu(h * (1 + scale) + shift), 0.1, self.training))


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer("frequency", torch.exp(torch.linspace(0, math.log(1000), width // 2)))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.inp = nn.Conv1d(2, width, 1)
        self.blocks = nn.ModuleList([Block(width, dilation) for dilation in (1, 2, 4, 1, 2, 4)])
        self.out = nn.Conv1d(width, 2, 1)

    def forward(self, x, t):
        angle = (t / TIMES).unsqueeze(1) * self.frequency
        time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = self.inp(x)
        for block in self.blocks:
            x = block(x, time)
        return self.out(x)


@torch.no_grad()
def follow(average, model, decay):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=70)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--accumulate", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(90)
    generator = torch.Generator().manual_seed(91)
    data, schedule = strokes(2048, generator), Schedule()
    model = Denoiser()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        for _ in range(args.accumulate):
            x = data[torch.randint(0, len(data), (32,), generator=generator)]
            t = torch.randint(0, TIMES, (len(x),), generator=generator)
            noise = torch.randn(x.shape, generator=generator)
            loss = F.mse_loss(model(schedule.noisy(x, noise, t), t), noise)
            (loss / args.accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        follow(average, model, min(0.995, step / (step + 10)))
        if step % 50 == 0:
            drawn = schedule.sample(average, 8, generator)
            print(f"step {step} loss {loss.item():.4f} spread of samples {drawn.std().item():.3f}")


if __name__ == "__main__":
    main()
