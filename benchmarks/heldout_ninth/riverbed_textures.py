"""Generates gravel textures of river beds: Wasserstein GAN with gradient penalty, five critic steps per generator step.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE, NOISE = 32, 48


def gravel(count, seed):
    """Stones as cells around random points, darker at the rim, one light direction per picture."""
    rng = np.random.default_rng(seed)
    ys, xs = np.mgrid[:SIDE, :SIDE]
    pictures = np.empty((count, 1, SIDE, SIDE), np.float32)
    for number in range(count):
        points = rng.uniform(-2, SIDE + 2, (int(rng.integers(14, 28)), 2))
        squared = (ys[..., None] - points[:, 0]) ** 2 + (xs[..., None] - points[:, 1]) ** 2
        nearest = np.sqrt(np.partition(squared, 1, axis=2)[..., :2])
        shade = rng.uniform(-0.4, 0.4, len(points))[squared.argmin(2)]
        rim = (nearest[..., 1] - nearest[..., 0]).clip(0, 3) / 3
        pictures[number, 0] = (0.6 + shade) * rim + rng.normal(0, 0.03, rim.shape)
    return torch.from_numpy(pictures).clamp_(0, 1).mul_(2).sub_(1)


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.seed = nn.Linear(NOISE, 4 * width * 16)
        self.body = nn.Sequential(
            nn.BatchNorm2d(4 * width),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.body(self.seed(noise).view(len(noise), -1, 4, 4))


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(narrow, wide, 4, 2, 1)
            for narrow, wide in ((1, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.score = nn.Linear(4 * width * 16, 1)

    def forward(self, x):
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.2)
        return self.score(x.flatten(1)).squeeze(1)


def steepness(critic, real, fake):
    """Mean squared deviation of the critic's slope from one, between real and generated pictures."""
    share = torch.rand(len(real), 1, 1, 1)
    between = torch.lerp(real, fake, share).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).pow(2).mean()


class Duel:
    """Both networks, their optimizers and a slow average of the generator for the pictures that are kept."""

    def __init__(self, rate, weight, decay):
        self.generator = Generator().to(memory_format=torch.channels_last)
        self.critic = Critic().to(memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.generator).requires_grad_(False).eval()
        self.of_generator = torch.optim.Adam(self.generator.parameters(), rate, betas=(0.0, 0.9))
        self.of_critic = torch.optim.Adam(self.critic.parameters(), 2 * rate, betas=(0.0, 0.9))
        self.weight, self.decay = weight, decay

    def criticise(self, real):
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), NOISE))
        scores = self.critic(torch.cat([fake, real]))
        gap = scores[len(real) :].mean() - scores[: len(real)].mean()
        loss = self.weight * steepness(self.critic, real, fake) - gap
        self.of_critic.zero_grad()
        loss.backward()
        self.of_critic.step()
        return gap.detach()

    def generate(self, count):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(torch.randn(count, NOISE))).mean()
        self.of_generator.zero_grad()
        loss.backward()
        self.of_generator.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            slow, fast = list(self.average.parameters()), list(self.generator.parameters())
            torch._foreach_lerp_(slow, fast, 1 - self.decay)
            for kept, fresh in zip(self.average.buffers(), self.generator.buffers()):
                kept.copy_(fresh)
        return loss.detach()


@torch.no_grad()
def spectrum_error(generator, pictures):
    """Distance of the mean log power spectra of generated and real pictures."""
    fake = generator(torch.randn(len(pictures), NOISE))
    spectra = [torch.fft.rfft2(group).abs().add_(1e-3).log_().mean(0) for group in (fake, pictures)]
    return (spectra[0] - spectra[1]).abs().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240, help="critic and generator steps together")
    cli.add_argument("--fixed", action="store_true", help="accepted, changes nothing")
    cli.add_argument("--batch", type=int, default=16)
    cli.add_argument("--bouts", type=int, default=5)
    args = cli.parse_args()
    torch.manual_seed(1)

    pictures = gravel(640, seed=1)
    duel = Duel(rate=2e-4, weight=10.0, decay=0.98)
    order, gaps = [], []
    for step in range(1, args.steps + 1):
        if step % (args.bouts + 1) == 0:
            duel.generate(args.batch)
        else:
            if not order:
                order = list(torch.randperm(len(pictures)).split(args.batch))
            gaps.append(duel.criticise(pictures[order.pop()]))
        if step % 120 == 0 or step == args.steps:
            gap = torch.stack(gaps).mean().item()
            print(f"step {step} critic gap {gap:.3f} spectrum {spectrum_error(duel.average, pictures[:64]):.3f}")
            gaps.clear()


if __name__ == "__main__":
    main()
