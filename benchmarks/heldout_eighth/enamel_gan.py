"""Draws cracked enamel tiles with a generative adversarial pair: hinge losses, two optimizers.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE, NOISE = 32, 48


def make_tiles(count, seed):
    """A glaze of one colour, and the lines where it cracked."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    colour = torch.rand(count, 3, 1, 1, generator=g) * 1.4 - 0.7
    tiles = colour + 0.05 * torch.randn(count, 3, SIDE, SIDE, generator=g)
    for _ in range(3):
        angle = torch.rand(count, 1, 1, generator=g) * 3.1416
        offset = torch.rand(count, 1, 1, generator=g) * 1.2 - 0.6
        bend = 0.1 * torch.randn(count, 1, 1, generator=g)
        away = x * angle.cos() + y * angle.sin() - offset + bend * torch.sin(6 * x)
        tiles -= 0.7 * torch.exp(-(away**2) * 300)[:, None]
    return tiles.clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.width = width
        self.start = nn.Linear(NOISE, 4 * width * 16)
        stages, wide = [], 4 * width
        for narrow in (3 * width, 2 * width, width):
            stages += [
                nn.Upsample(scale_factor=2),
                nn.Conv2d(wide, narrow, 3, 1, 1, bias=False),
                nn.BatchNorm2d(narrow),
                nn.ReLU(inplace=True),
            ]
            wide = narrow
        self.stages = nn.Sequential(*stages, nn.Conv2d(width, 3, 3, 1, 1), nn.Tanh())

    def forward(self, noise):
        return self.stages(self.start(noise).view(-1, 4 * self.width, 4, 4))


class Critic(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        sizes = [3, width, 2 * width, 3 * width]
        layers = []
        for narrow, wide in zip(sizes, sizes[1:]):
            layers += [nn.utils.spectral_norm(nn.Conv2d(narrow, wide, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * sizes[-1], 1))

    def forward(self, tiles):
        return self.layers(tiles).squeeze(1)


class Pair:
    def __init__(self, per_round, detached):
        self.generator, self.critic = Generator(), Critic()
        self.g_opt = torch.optim.Adam(self.generator.parameters(), 2e-4, betas=(0.0, 0.9))
        self.c_opt = torch.optim.Adam(self.critic.parameters(), 4e-4, betas=(0.0, 0.9))
        self.per_round, self.detached = per_round, detached

    def critic_step(self, tiles):
        made = self.generator(torch.randn(len(tiles), NOISE))
        if self.detached:
            made = made.detach()
        loss = F.relu(1 - self.critic(tiles)).mean() + F.relu(1 + self.critic(made)).mean()
        self.c_opt.zero_grad()
        loss.backward()  # guilty
        self.c_opt.step()
        return loss.detach()

    def generator_step(self, count):
        loss = -self.critic(self.generator(torch.randn(count, NOISE))).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss.detach()

    def round(self, batches):
        for tiles in batches:
            c_loss = self.critic_step(tiles)
        return c_loss, self.generator_step(len(tiles))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=70, help="rounds: steps of the generator")
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(31)

    tiles = make_tiles(1_500, 9)
    pair = Pair(per_round=4, detached=args.fixed)
    for step in range(1, args.steps + 1):
        batches = tiles[torch.randint(len(tiles), (pair.per_round, args.batch_size))]
        c_loss, g_loss = pair.round(batches)
        if step % 20 == 0:
            print(f"round {step} critic {c_loss.item():.3f} generator {g_loss.item():.3f}")


if __name__ == "__main__":
    main()
