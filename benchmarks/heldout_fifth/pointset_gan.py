"""A GAN over small point sets: a generator of outlines with self-attention against a pooled critic.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def outlines(n, points, gen):
    """Closed curves of a few random harmonics, as unordered points."""
    t = torch.rand(n, points, generator=gen) * 2 * math.pi
    radius = torch.ones_like(t)
    for k in range(2, 6):
        amp = 0.4 * torch.rand(n, 1, generator=gen) / k
        radius = radius + amp * torch.cos(k * t + 6.28 * torch.rand(n, 1, generator=gen))
    return torch.stack([radius * t.cos(), radius * t.sin()], -1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))
        self.heads = heads

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(att.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class Generator(nn.Module):
    def __init__(self, latent=32, dim=96, depth=3):
        super().__init__()
        self.style = nn.Linear(latent, dim)
        self.noise = nn.Linear(4, dim)
        self.blocks = nn.Sequential(*[Block(dim, 4) for _ in range(depth)])
        self.out = nn.Linear(dim, 2)

    def forward(self, z, noise):
        return self.out(self.blocks(self.noise(noise) + self.style(z)[:, None]))


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2))
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))

    def forward(self, p):
        h = self.point(p)
        return self.head(torch.cat([h.mean(1), h.amax(1)], -1))


class Adversaries:
    def __init__(self, batch, points, detach):
        self.gen, self.critic = Generator(), Critic()
        self.opt_g = torch.optim.Adam(self.gen.parameters(), 2e-4, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), 4e-4, betas=(0.5, 0.9))
        self.batch, self.points, self.detach = batch, points, detach

    def fake(self):
        return self.gen(torch.randn(self.batch, 32), torch.randn(self.batch, self.points, 4))

    def critic_step(self, real):
        if self.detach:
            with torch.no_grad():
                fake = self.fake()
        else:
            fake = self.fake()  # guilty
        loss = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(fake)).mean()
        self.opt_c.zero_grad()
        loss.backward()  # guilty
        self.opt_c.step()
        return loss

    def gen_step(self):
        loss = -self.critic(self.fake()).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=340)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(9)
    game = Adversaries(batch=16, points=48, detach=args.fixed)
    for step in range(args.steps):
        loss_c = game.critic_step(outlines(16, 48, gen))  # guilty
        loss_g = game.gen_step()
        if step % 50 == 0:
            print(f"step {step} critic {loss_c.item():.3f} gen {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
