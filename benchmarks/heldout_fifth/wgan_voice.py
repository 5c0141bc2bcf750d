"""A Wasserstein GAN with gradient penalty that makes short voiced sounds, with three critic updates for each step.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LATENT, LENGTH = 32, 1024


def make_voices(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, LENGTH)
    pitch = 8 + 16 * torch.rand(n, 1, generator=g)
    vibrato = 0.4 * torch.sin(2 * math.pi * (2 + 3 * torch.rand(n, 1, generator=g)) * t)
    phase = 2 * math.pi * pitch * t + vibrato
    wave = sum(torch.sin(k * phase) / k**1.5 for k in range(1, 6))
    return (0.4 * wave * torch.sin(math.pi * t)).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.inp = nn.Linear(LATENT, width * 16)
        layers, i = [], width
        for o in (64, 32, 16):
            layers += [nn.ConvTranspose1d(i, o, 8, 4, 2), nn.GroupNorm(4, o), nn.ReLU()]
            i = o
        self.body, self.out = nn.Sequential(*layers), nn.Conv1d(i, 1, 9, 1, 4)

    def forward(self, z):
        return torch.tanh(self.out(self.body(self.inp(z).view(len(z), -1, 16))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        layers, i = [], 1
        for o in (24, 48, 96):
            layers += [nn.Conv1d(i, o, 9, 4, 4), nn.LeakyReLU(0.2)]
            i = o
        self.body, self.out = nn.Sequential(*layers), nn.Linear(96 * 16, 1)

    def forward(self, x):
        return self.out(self.body(x).flatten(1)).squeeze(1)


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_()
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--critic-updates", type=int, default=3)
    cli.add_argument("--batch", type=int, default=20)
    args = cli.parse_args()
    torch.manual_seed(18)
    voices = make_voices(1000, 4)
    generator, critic = Generator(), Critic()
    opt_g = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.5, 0.9))
    for step in range(1, args.steps + 1):
        for _ in range(args.critic_updates):
            real = voices[torch.randint(0, len(voices), (args.batch,))]
            with torch.no_grad():
                fake = generator(torch.randn(args.batch, LATENT))
            loss_c = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        critic.requires_grad_(False)
        sound = generator(torch.randn(args.batch, LATENT))
        smooth = F.mse_loss(sound[..., 1:], sound[..., :-1])
        loss_g = -critic(sound).mean() + 0.1 * smooth
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)
        if step % 25 == 0:
            print(f"step {step} critic {loss_c.item():.4f} generator {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
