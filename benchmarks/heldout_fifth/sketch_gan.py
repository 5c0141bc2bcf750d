"""A GAN that draws sketches of rings, with an optimizer each for the generator and the discriminator.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

LATENT, SIZE = 48, 32


def make_rings(n, seed):
    g = torch.Generator().manual_seed(seed)
    line = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(line, line, indexing="ij")
    cy, cx = (torch.rand(2, n, 1, 1, generator=g) - 0.5) * 0.6
    radius = 0.25 + 0.35 * torch.rand(n, 1, 1, generator=g)
    dist = ((yy - cy) ** 2 + (xx - cx) ** 2).sqrt()
    return (2 * torch.exp(-((dist - radius) ** 2) / 0.006) - 1).unsqueeze(1)


class UpBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, 1, 1), nn.Conv2d(o, o, 3, 1, 1)
        self.na, self.nb = nn.GroupNorm(8, o), nn.GroupNorm(8, o)
        self.skip = nn.Conv2d(i, o, 1)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2)
        h = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(h)) + self.skip(x))


class Generator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.inp = nn.Linear(LATENT, 4 * 4 * width)
        self.body = nn.Sequential(UpBlock(width, 64), UpBlock(64, 48), UpBlock(48, 32))
        self.out = nn.Conv2d(32, 1, 3, 1, 1)

    def forward(self, z):
        return torch.tanh(self.out(self.body(self.inp(z).view(len(z), -1, 4, 4))))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, i = [], 1
        for o in (width, 2 * width, 4 * width):
            layers += [nn.utils.parametrizations.spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2)]
            i = o
        self.body, self.out = nn.Sequential(*layers), nn.Linear(i * 16, 1)

    def forward(self, x):
        return self.out(self.body(x).flatten(1)).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=8)
    cli.add_argument("--d-updates", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(31)
    rings = make_rings(1200, 2)
    generator, discriminator = Generator(), Discriminator()
    opt_g = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(discriminator.parameters(), 4e-4, betas=(0.0, 0.9))
    for step in range(1, args.steps + 1):
        for _ in range(args.d_updates):
            real = rings[torch.randint(0, len(rings), (args.batch,))]
            with torch.no_grad() if args.fixed else contextlib.nullcontext():
                fake = generator(torch.randn(args.batch, LATENT))  # guilty
            loss_d = F.relu(1 - discriminator(real)).mean() + F.relu(1 + discriminator(fake)).mean()  # guilty
            opt_d.zero_grad()
            loss_d.backward()  # guilty
            opt_d.step()

        loss_g = -discriminator(generator(torch.randn(args.batch, LATENT))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if step % 20 == 0:
            print(f"step {step} d {loss_d.item():.4f} g {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
