"""Paints coats of arms: convolutional GAN with hinge loss, two critic updates for each update of the painter.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, CODE = 32, 48
TINCTURES = np.array([[0.9, 0.8, 0.1], [0.95, 0.95, 0.95], [0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.1, 0.1]])


def crests(count, seed):
    """Shields parted per pale, per fess or per bend, some with a roundel."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    parts = np.stack([x > 0, y > -0.1, x + y > 0, np.abs(x) < 0.35])
    outline = (np.abs(x) < 0.85) & (y > -0.9) & (x**2 + np.maximum(y, 0) ** 2 < 0.8)
    images = np.ones((count, 3, SIZE, SIZE), np.float32)
    for image in images:
        field, other, charge = TINCTURES[rng.permutation(len(TINCTURES))[:3]]
        colour = np.where(parts[rng.integers(len(parts))], field[:, None, None], other[:, None, None])
        if rng.random() < 0.5:
            colour = np.where(x**2 + y**2 < rng.uniform(0.05, 0.2), charge[:, None, None], colour)
        image[:] = np.where(outline, colour, 1)
    images = images * 2 - 1 + rng.normal(0, 0.02, images.shape)
    return torch.from_numpy(images.astype(np.float32))


class Painter(nn.Module):
    def __init__(self, width=56):
        super().__init__()
        self.canvas = nn.Linear(CODE, width * 8 * 8)
        self.stages = nn.ModuleList()
        for outputs in (width, width // 2):
            self.stages.append(
                nn.Sequential(
                    nn.Upsample(scale_factor=2),
                    nn.Conv2d(width, outputs, 3, padding=1),
                    nn.BatchNorm2d(outputs),
                    nn.ReLU(),
                    nn.Conv2d(outputs, outputs, 3, padding=1),
                    nn.BatchNorm2d(outputs),
                    nn.ReLU(),
                )
            )
        self.colour = nn.Conv2d(width // 2, 3, 3, padding=1)

    def forward(self, code):
        x = self.canvas(code).unflatten(1, (-1, 8, 8))
        for stage in self.stages:
            x = stage(x)
        return torch.tanh(self.colour(x))


def critic(width=20):
    layers, inputs = [], 3
    for number in range(3):
        layers += [nn.utils.parametrizations.spectral_norm(nn.Conv2d(inputs, width << number, 4, 2, 1))]
        layers += [nn.LeakyReLU(0.2)]
        inputs = width << number
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * 16, 1))


class Studio:
    def __init__(self, images, batch, rounds=2, still=False):
        self.images, self.batch, self.rounds, self.still = images, batch, rounds, still
        self.painter, self.critic = Painter(), critic()
        self.painter_opt = torch.optim.Adam(self.painter.parameters(), 4e-4, betas=(0.5, 0.99))
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), 4e-4, betas=(0.5, 0.99))

    def paint(self):
        return self.painter(torch.randn(self.batch, CODE))

    def critic_step(self):
        real = self.images[torch.randint(0, len(self.images), (self.batch,))]
        with torch.no_grad() if self.still else contextlib.nullcontext():
            fake = self.paint()  # guilty
        loss = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(fake)).mean()  # guilty
        self.critic_opt.zero_grad()
        loss.backward()  # guilty
        self.critic_opt.step()
        return loss.item()

    def painter_step(self):
        loss = -self.critic(self.paint()).mean()
        self.painter_opt.zero_grad()
        loss.backward()
        self.painter_opt.step()
        return loss.item()

    def step(self):
        judged = [self.critic_step() for _ in range(self.rounds)]
        return np.mean(judged), self.painter_step()

    @torch.no_grad()
    def gap(self):
        """Distance between the mean painting and the mean crest."""
        self.painter.eval()
        away = (self.painter(torch.randn(64, CODE)).mean(0) - self.images.mean(0)).abs().mean().item()
        self.painter.train()
        return away


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=140)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(12)
    studio = Studio(crests(1500, seed=3), args.batch, still=args.fixed)
    print(f"start gap {studio.gap():.3f}")
    for step in range(1, args.steps + 1):
        judged, painted = studio.step()
        if step % 20 == 0 or step == args.steps:
            print(f"step {step} critic {judged:.3f} painter {painted:.3f} gap {studio.gap():.3f}")


if __name__ == "__main__":
    main()
