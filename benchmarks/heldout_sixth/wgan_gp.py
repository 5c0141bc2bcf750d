"""A Wasserstein GAN with gradient penalty on small textures: several critic updates for each of the generator's.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn

LATENT, SIDE = 32, 16


def textures(n, generator):
    """Plane waves of random direction and phase under a soft window."""
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = 3.1416 * torch.rand(n, 1, 1, generator=generator)
    phase = 6.2832 * torch.rand(n, 1, 1, generator=generator)
    pitch = 4 + 4 * torch.rand(n, 1, 1, generator=generator)
    waves = torch.sin(pitch * (torch.cos(angle) * x + torch.sin(angle) * y) + phase)
    return (waves * torch.exp(-(x**2 + y**2))).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inp = nn.Linear(LATENT, 4 * width * 16)
        self.body = nn.Sequential(
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.body(self.inp(z).view(len(z), -1, 4, 4))


class Critic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 1),
        )

    def forward(self, x):
        return self.body(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    share = torch.rand(len(real), 1, 1, 1)
    between = torch.lerp(real, fake, share).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square().mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--critic-updates", type=int, default=4)
    cli.add_argument("--batch-size", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(60)
    data = textures(4096, torch.Generator().manual_seed(61))
    generator, critic = Generator(), Critic()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.9))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
    for step in range(1, args.steps + 1):
        for _ in range(args.critic_updates):
            real = data[torch.randint(0, len(data), (args.batch_size,))]
            with torch.no_grad():
                fake = generator(torch.randn(args.batch_size, LATENT))
            distance = critic(real).mean() - critic(fake).mean()
            penalty = gradient_penalty(critic, real, fake)
            c_optimizer.zero_grad()
            (10.0 * penalty - distance).backward()
            c_optimizer.step()
        critic.requires_grad_(False)
        fooled = critic(generator(torch.randn(args.batch_size, LATENT))).mean()
        g_optimizer.zero_grad()
        (-fooled).backward()
        g_optimizer.step()
        critic.requires_grad_(True)
        if step % 25 == 0:
            print(f"step {step} distance {distance.item():.4f} penalty {penalty.item():.4f}")


if __name__ == "__main__":
    main()
