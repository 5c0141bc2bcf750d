"""A Wasserstein GAN with gradient penalty that generates single heartbeats.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LENGTH, LATENT = 256, 48
WAVES = ((0.25, 0.03, 0.15), (0.40, 0.008, -0.2), (0.43, 0.010, 1.2), (0.46, 0.008, -0.3), (0.68, 0.05, 0.3))


def make_beats(count, seed):
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, LENGTH, dtype=np.float32)[None]
    beats = np.zeros((count, LENGTH), dtype=np.float32)
    for place, spread, height in WAVES:
        where = place + 0.015 * rng.standard_normal((count, 1))
        wide = spread * rng.uniform(0.7, 1.4, (count, 1))
        tall = height * rng.uniform(0.6, 1.3, (count, 1))
        beats += (tall * np.exp(-((time - where) ** 2) / (2 * wide**2))).astype(np.float32)
    return torch.from_numpy(beats)[:, None]


class Generator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.start = nn.Linear(LATENT, width * 16)
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 7, padding=3) for _ in range(4)])
        self.out = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, z):
        x = self.start(z).view(len(z), -1, 16)
        for conv in self.convs:
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2.0)), 0.1)
        return self.out(x)


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(1, width, 9, 2, 4),
            nn.LeakyReLU(0.2),
            nn.Conv1d(width, 2 * width, 9, 2, 4),
            nn.LeakyReLU(0.2),
            nn.Conv1d(2 * width, 2 * width, 9, 4, 4),
            nn.LeakyReLU(0.2),
        )
        self.score = nn.Linear(2 * width * 16, 1)

    def forward(self, x):
        return self.score(self.convs(x).flatten(1)).squeeze(1)


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1)
    between = torch.lerp(fake, real, mix).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).pow(2).mean()


def critic_step(generator, critic, optimizer, real):
    critic.requires_grad_(True)
    with torch.no_grad():
        fake = generator(torch.randn(len(real), LATENT))
    low, high = critic(torch.cat([fake, real])).chunk(2)
    distance = high.mean() - low.mean()
    loss = 10.0 * penalty(critic, real, fake) - distance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return distance.detach()


def generator_step(generator, critic, optimizer, count):
    critic.requires_grad_(False)
    loss = -critic(generator(torch.randn(count, LATENT))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160, help="critic and generator steps together")
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=32)
    cli.add_argument("--critic-steps", type=int, default=5)
    args = cli.parse_args()
    torch.manual_seed(37)

    beats = make_beats(4000, 41)
    generator, critic = Generator(), Critic()
    generator_opt = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9))
    critic_opt = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))
    for step in range(1, args.steps + 1):
        if step % (args.critic_steps + 1):
            real = beats[torch.randint(len(beats), (args.batch_size,))]
            distance = critic_step(generator, critic, critic_opt, real)
        else:
            generator_step(generator, critic, generator_opt, args.batch_size)
        if step % 40 == 0:
            print(f"step {step} distance {distance.item():.4f}")


if __name__ == "__main__":
    main()
