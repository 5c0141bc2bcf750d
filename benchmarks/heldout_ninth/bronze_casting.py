"""Draws synthetic X-ray images of bronze castings with pores: Wasserstein GAN with clipped critic weights.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

SIDE = 32


@dataclass
class Settings:
    batch: int = 16
    latent: int = 48
    width: int = 20
    critic_turns: int = 4
    clip: float = 0.02
    rate: float = 2e-4
    hold_generator: bool = False


def castings(count, seed):
    """A grey ramp for the thickness of the wall with dark round pores in it."""
    rng = np.random.default_rng(seed)
    ys, xs = np.mgrid[:SIDE, :SIDE].astype(np.float32) / SIDE
    slope = rng.uniform(-0.6, 0.6, (count, 2, 1, 1))
    images = slope[:, 0] * (xs - 0.5) + slope[:, 1] * (ys - 0.5) + 0.3
    for _ in range(4):
        y, x = rng.uniform(0.1, 0.9, (2, count, 1, 1))
        radius, depth = rng.uniform(0.03, 0.12, (count, 1, 1)), rng.uniform(0, 1, (count, 1, 1))
        images -= depth * np.exp(-((ys - y) ** 2 + (xs - x) ** 2) / radius**2)
    images += rng.normal(0, 0.03, images.shape)
    return torch.from_numpy(images.clip(-1, 1).astype(np.float32))[:, None]


class Up(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.grow = nn.ConvTranspose2d(narrow, wide, 4, 2, 1, bias=False)
        self.refine = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)])

    def forward(self, x):
        x = torch.relu(self.norms[0](self.grow(x)))
        return torch.relu(self.norms[1](self.refine(x)) + x)


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.seed = nn.Linear(latent, 4 * width * 16)
        self.body = nn.Sequential(Up(4 * width, 2 * width), Up(2 * width, width), Up(width, width))
        self.out = nn.Conv2d(width, 1, 3, 1, 1)

    def forward(self, noise):
        return torch.tanh(self.out(self.body(self.seed(noise).view(len(noise), -1, 4, 4))))


def make_critic(width):
    return nn.Sequential(
        nn.Conv2d(1, width // 2, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width // 2, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 1),
    )


class Duel:
    def __init__(self, settings, images):
        self.settings, self.images = settings, images
        self.generator = Generator(settings.latent, settings.width)
        self.critic = make_critic(settings.width // 2)
        self.generator_optimizer = torch.optim.RMSprop(self.generator.parameters(), settings.rate)
        self.critic_optimizer = torch.optim.RMSprop(self.critic.parameters(), settings.rate)
        self.history = {"critic": [], "generator": []}

    def turn(self, critic):
        """Sets which of the two nets learns now."""
        self.critic.requires_grad_(critic)
        self.generator.requires_grad_(not (critic and self.settings.hold_generator))  # guilty

    def fakes(self):
        return self.generator(torch.randn(self.settings.batch, self.settings.latent))  # guilty

    def critic_step(self):
        self.turn(critic=True)
        real = self.images[torch.randint(len(self.images), (self.settings.batch,))]
        fake = self.fakes()  # guilty
        loss = self.critic(fake).mean() - self.critic(real).mean()
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        with torch.no_grad():
            for weight in self.critic.parameters():
                weight.clamp_(-self.settings.clip, self.settings.clip)
        self.history["critic"].append(-loss.item())

    def generator_step(self):
        self.turn(critic=False)
        loss = -self.critic(self.fakes()).mean()
        self.generator_optimizer.zero_grad()
        loss.backward()
        self.generator_optimizer.step()
        self.history["generator"].append(loss.item())

    def report(self, step):
        recent = {name: np.mean(values[-20:]) if values else float("nan") for name, values in self.history.items()}
        print(f"step {step} wasserstein {recent['critic']:.4f} generator {recent['generator']:.4f}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(21)

    duel = Duel(Settings(hold_generator=args.fixed), castings(1500, seed=5))
    cycle = duel.settings.critic_turns + 1
    for step in range(1, args.steps + 1):
        if step % cycle:
            duel.critic_step()
        else:
            duel.generator_step()
        if step % 50 == 0 or step == args.steps:
            duel.report(step)

    duel.generator.eval()
    with torch.no_grad():
        drawn = duel.generator(torch.randn(64, duel.settings.latent))
    print(f"brightness drawn {drawn.mean():.3f} real {duel.images.mean():.3f}, spread {drawn.std():.3f}")


if __name__ == "__main__":
    main()
