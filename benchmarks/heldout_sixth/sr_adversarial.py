"""Adversarial super-resolution of textures, with a gradient penalty on the critic from time to time.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HIGH = 24


def make_textures(n, seed):
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:HIGH, :HIGH] / HIGH
    angle, waves = rng.uniform(0, np.pi, (n, 3, 1, 1)), rng.uniform(2, 8, (n, 3, 1, 1))
    slant = rows * np.cos(angle) + columns * np.sin(angle)
    texture = np.sin(2 * np.pi * waves * slant + rng.uniform(0, 6, (n, 3, 1, 1)))
    texture = np.sign(texture) * np.abs(texture) ** 0.5
    return torch.tensor(texture, dtype=torch.float32)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x):
        return x + 0.3 * self.b(F.relu(self.a(x)))


class Generator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.body = nn.Sequential(*[Residual(width) for _ in range(3)])
        self.up = nn.Conv2d(width, 4 * width, 3, 1, 1)
        self.out = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, low):
        x = F.relu(F.pixel_shuffle(self.up(self.body(self.stem(low))), 2))
        return F.interpolate(low, scale_factor=2, mode="bilinear") + self.out(x)


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * (HIGH // 4) ** 2, 1),
        )

    def forward(self, picture):
        return self.net(picture).squeeze(1)


def penalty(critic, real):
    """R1: the critic's slope at real pictures."""
    real = real.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
    return slope.square().sum((1, 2, 3)).mean()


class Trainer:
    def __init__(self, penalty_every=8):
        self.generator, self.critic = Generator(), Critic()
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), 3e-4, betas=(0.5, 0.99))
        self.c_optimizer = torch.optim.Adam(self.critic.parameters(), 2e-4, betas=(0.5, 0.99))
        self.penalty_every = penalty_every

    def critic_step(self, step, real, fake):
        loss = F.softplus(-self.critic(real)).mean() + F.softplus(self.critic(fake)).mean()
        if step % self.penalty_every == 0:
            loss = loss + 0.1 * self.penalty_every * penalty(self.critic, real)
        self.c_optimizer.zero_grad()
        loss.backward()
        self.c_optimizer.step()
        return loss.detach()

    def generator_step(self, real, fake):
        self.critic.requires_grad_(False)
        pixel, fooled = F.l1_loss(fake, real), F.softplus(-self.critic(fake)).mean()
        self.g_optimizer.zero_grad()
        (pixel + 0.01 * fooled).backward()
        self.g_optimizer.step()
        self.critic.requires_grad_(True)
        return pixel.detach()

    def step(self, step, real):
        low = F.avg_pool2d(real, 2)
        fake = self.generator(low)
        critic_loss = self.critic_step(step, real, fake.detach())
        return critic_loss, self.generator_step(real, fake)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true", help="there is nothing to repair")
    args = cli.parse_args()
    torch.manual_seed(3)
    textures = make_textures(1200, 7)
    trainer = Trainer()
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(textures), (8,))
        critic_loss, pixel = trainer.step(step, textures[rows])
        if step % 50 == 0:
            print(f"step {step} critic {critic_loss.item():.4f} pixel {pixel.item():.4f}")


if __name__ == "__main__":
    main()
