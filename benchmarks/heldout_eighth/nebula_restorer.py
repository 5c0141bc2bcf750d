"""Restores nebulae by cold diffusion: the network learns to undo a blur of a random strength.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, LEVELS = 48, 24


def nebulae(count):
    """Clouds with a power law in frequency, lit in two colours, and a few stars."""
    pitch = torch.fft.fftfreq(SIDE)
    far = (pitch[:, None] ** 2 + pitch**2).sqrt() + 1 / SIDE
    waves = torch.fft.fft2(torch.randn(count, 3, SIDE, SIDE)) / far**1.4
    clouds = torch.fft.ifft2(waves).real
    clouds = clouds / clouds.std((2, 3), keepdim=True)
    stars = (torch.rand(count, 1, SIDE, SIDE) > 0.997).float() * 3
    return (0.5 * clouds + stars).tanh()


def bell(sigma, size=7):
    steps = torch.arange(size) - size // 2
    line = torch.exp(-(steps**2) / (2 * sigma * sigma))
    return torch.outer(line, line) / line.sum() ** 2


class Blur:
    """The degradation: level t blurs t times, on a torus."""

    def __init__(self, sigma=0.9):
        self.kernel = bell(sigma).expand(3, 1, 7, 7).contiguous()

    def __call__(self, images, levels):
        stages = [images]
        for _ in range(LEVELS):
            padded = F.pad(stages[-1], (3, 3, 3, 3), mode="circular")  # guilty
            stages.append(F.conv2d(padded, self.kernel, groups=3))  # guilty
        return torch.stack(stages)[levels, torch.arange(len(images))]  # guilty


class SpectralBlur:
    """The same degradation by its transfer function, whose power is the level."""

    def __init__(self, sigma=0.9):
        around = torch.zeros(SIDE, SIDE)
        around[:7, :7] = bell(sigma)
        self.transfer = torch.fft.rfft2(around.roll((-3, -3), (0, 1))).real

    def __call__(self, images, levels):
        power = self.transfer.expand(len(images), 1, -1, -1) ** levels[:, None, None, None]
        return torch.fft.irfft2(torch.fft.rfft2(images) * power, s=(SIDE, SIDE))


class Stage(nn.Module):
    def __init__(self, inside, outside, clock=32):
        super().__init__()
        self.conv, self.again = nn.Conv2d(inside, outside, 3, 1, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        self.level, self.norm = nn.Linear(clock, outside), nn.GroupNorm(4, outside)

    def forward(self, images, clock):
        hidden = F.silu(self.conv(images)) + self.level(clock)[..., None, None]
        return F.silu(self.norm(self.again(hidden)))


class Restorer(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.one, self.two = Stage(3, width), Stage(width, 2 * width)
        self.low, self.up = Stage(2 * width, 2 * width), Stage(4 * width, width)
        self.out = nn.Conv2d(2 * width, 3, 3, 1, 1)
        self.register_buffer("waves", torch.exp(torch.linspace(0, -math.log(50), 16)))

    def forward(self, images, levels):
        turn = levels[:, None] * self.waves
        clock = torch.cat([turn.sin(), turn.cos()], 1)
        one = self.one(images, clock)
        two = self.two(F.avg_pool2d(one, 2), clock)
        low = self.low(F.avg_pool2d(two, 2), clock)
        up = self.up(torch.cat([two, F.interpolate(low, scale_factor=2.0)], 1), clock)
        return images + self.out(torch.cat([one, F.interpolate(up, scale_factor=2.0)], 1))


@torch.no_grad()
def restore(net, blur, images):
    """From the strongest blur back, with the correction of the second order."""
    level = torch.full((len(images),), LEVELS)
    seen = blur(images, level)
    while int(level[0]) > 0:
        guess = net(seen, level)
        seen = seen - blur(guess, level) + blur(guess, level - 1)
        level = level - 1
    return seen


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(37)
    images = nebulae(300)
    blur = SpectralBlur() if args.fixed else Blur()
    net = Restorer()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        clean = images[torch.randint(len(images), (args.batch,))]
        levels = torch.randint(1, LEVELS + 1, (args.batch,))
        loss = F.l1_loss(net(blur(clean, levels), levels), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} error {loss.item():.4f}")
    shown = images[:2]
    print(f"restored to {F.l1_loss(restore(net, blur, shown), shown).item():.4f}")


if __name__ == "__main__":
    main()
