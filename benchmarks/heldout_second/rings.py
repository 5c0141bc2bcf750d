"""A GAN that learns to draw points on rings, fed by an endless iterable.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, IterableDataset


class Rings(IterableDataset):
    """Yields whole batches, so the loader has nothing to put together."""

    def __init__(self, batch: int):
        self.batch = batch

    def __iter__(self):
        generator = torch.Generator().manual_seed(5)
        while True:
            radius = torch.randint(1, 4, (self.batch, 1), generator=generator)
            angle = 2 * torch.pi * torch.rand(self.batch, 1, generator=generator)
            yield radius * torch.cat([angle.cos(), angle.sin()], 1)


def mlp(inputs: int, outputs: int, width: int = 160) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, outputs),
    )


class Game:
    def __init__(self, batch: int):
        self.batch = batch
        self.forger, self.expert = mlp(8, 2), mlp(2, 1)
        self.forging = torch.optim.Adam(self.forger.parameters(), 2e-4, betas=(0.5, 0.99))
        self.learning = torch.optim.Adam(self.expert.parameters(), 2e-4, betas=(0.5, 0.99))

    def round(self, real):
        fake = self.forger(torch.randn(self.batch, 8))
        caught = softplus(-self.expert(real)).mean() + softplus(self.expert(fake.detach())).mean()
        self.learning.zero_grad()
        caught.backward()
        self.learning.step()
        missed = softplus(-self.expert(fake)).mean()
        self.forging.zero_grad()
        missed.backward()
        self.forging.step()
        return caught, missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    game = Game(args.batch)
    loader = DataLoader(Rings(args.batch), batch_size=None)
    for step, real in enumerate(loader, 1):
        caught, missed = game.round(real)
        if step % 60 == 0:
            print(f"{step}: expert {caught.item():.3f}, forger {missed.item():.3f}")
        if step == args.steps:
            break
    with tempfile.TemporaryDirectory() as folder:
        torch.save(game.forger.state_dict(), Path(folder) / "forger.pt")
