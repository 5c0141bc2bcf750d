"""Wasserstein GAN with a gradient penalty on a mixture of rings: several critic steps to each one of the generator.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=280)
ap.add_argument("--fixed", action="store_true", help="changes nothing")
ap.add_argument("--n-critic", type=int, default=3)
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--penalty", type=float, default=10.0)
args = ap.parse_args()
torch.manual_seed(0)
DIM = 64


class Rings:
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        angle = torch.rand(n, generator=g) * 2 * math.pi
        radius = torch.randint(1, 4, (n,), generator=g) + 0.05 * torch.randn(n, generator=g)
        plane = torch.randn(2, DIM, generator=g) / math.sqrt(DIM)
        self.points = torch.stack([angle.cos() * radius, angle.sin() * radius], 1) @ plane

    def batch(self, n):
        return self.points[torch.randint(0, len(self.points), (n,))]


def tower(i, o, width=256, depth=3):
    layers = [nn.Linear(i, width), nn.LeakyReLU(0.2)]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(width, o))


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((grad.norm(2, 1) - 1) ** 2).mean()


data = Rings(20_000)
generator, critic = tower(16, DIM), tower(DIM, 1)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))

for step in range(1, args.steps + 1):
    for p in critic.parameters():
        p.requires_grad_(True)
    for _ in range(args.n_critic):
        real = data.batch(args.batch)
        with torch.no_grad():
            fake = generator(torch.randn(args.batch, 16))
        distance = critic(fake).mean() - critic(real).mean()
        loss_c = distance + args.penalty * gradient_penalty(critic, real, fake)
        opt_c.zero_grad(set_to_none=True)
        loss_c.backward()
        opt_c.step()
    for p in critic.parameters():
        p.requires_grad_(False)
    loss_g = -critic(generator(torch.randn(args.batch, 16))).mean()
    opt_g.zero_grad(set_to_none=True)
    loss_g.backward()
    opt_g.step()
    if step % 40 == 0:
        with torch.no_grad():
            spread = generator(torch.randn(256, 16)).std().item()
        print(f"[{step}/{args.steps}] critic {loss_c.item():.3f} generator {loss_g.item():.3f} spread {spread:.3f}")
