"""A Wasserstein GAN with gradient penalty that imitates daily price curves, with several critic steps per round.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DAY = 48


class PriceDays:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, n):
        t = torch.linspace(0, 2 * math.pi, DAY)
        level = 1 + 0.3 * torch.randn(n, 1, generator=self.gen)
        shape = 0.6 * torch.sin(t - 1.5) + 0.4 * torch.sin(2 * t + torch.randn(n, 1, generator=self.gen))
        jumps = (torch.rand(n, DAY, generator=self.gen) < 0.02).float() * 2
        walk = torch.randn(n, DAY, generator=self.gen).cumsum(1) * 0.03
        return (level * (1 + shape) + jumps + walk)[:, None] / 2


class Critic(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 5, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(2 * width, 2 * width, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * DAY // 4, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Generator(nn.Module):
    def __init__(self, latent=24, width=48):
        super().__init__()
        self.start = nn.Linear(latent, 2 * width * DAY // 4)
        self.mid = nn.ModuleList(
            [nn.Conv1d(2 * width, 2 * width, 5, padding=2), nn.Conv1d(2 * width, width, 5, padding=2)]
        )
        self.out = nn.Conv1d(width, 1, 5, padding=2)
        self.latent = latent

    def forward(self, n):
        h = F.relu(self.start(torch.randn(n, self.latent))).unflatten(1, (-1, DAY // 4))
        for conv in self.mid:
            h = F.relu(conv(F.interpolate(h, scale_factor=2)))
        return self.out(h)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1)
    point = (mix * real + (1 - mix) * fake).requires_grad_()
    grad = torch.autograd.grad(critic(point).sum(), point, create_graph=True)[0]
    return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=480)
    cli.add_argument("--batch", type=int, default=48)
    cli.add_argument("--critic-steps", type=int, default=3)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    days = PriceDays(1)
    critic, generator = Critic(), Generator()
    opt_c = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.0, 0.9))
    opt_g = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.0, 0.9))
    for step in range(1, args.steps + 1):
        critic.requires_grad_(True)
        real = days.draw(args.batch)
        with torch.no_grad():
            fake = generator(args.batch)
        gap = critic(fake).mean() - critic(real).mean()
        loss_c = gap + 10 * gradient_penalty(critic, real, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        if step % args.critic_steps == 0:
            critic.requires_grad_(False)
            loss_g = -critic(generator(args.batch)).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
        if step % 60 == 0:
            print(f"step {step} distance {-gap.item():.3f} critic {loss_c.item():.3f} generator {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
