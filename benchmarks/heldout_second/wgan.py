"""A Wasserstein GAN of little handwriting, with a board that shows how it goes.

expects: CA604
needs: cpu
"""

# mypy: ignore-errors

import argparse
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

SIDE, NOISE = 20, 32


class Board:
    """Pictures of samples and histograms of weights, as files a browser can show."""

    def __init__(self, folder: Path, every: int):
        self.folder, self.every = folder, every

    def update(self, step: int, nets: dict, samples: torch.Tensor) -> None:
        if step % self.every:
            return
        for name, net in nets.items():
            self.histograms(f"{name}-{step % 10}", net)  # guilty
        grid = samples[:36].view(6, 6, SIDE, SIDE).transpose(1, 2).reshape(6 * SIDE, 6 * SIDE)
        pixels = ((grid.clamp(-1, 1) + 1) * 127).byte().numpy()
        Image.fromarray(pixels).resize((400, 400)).save(self.folder / f"samples-{step % 10}.png")  # guilty

    def histograms(self, name: str, net: nn.Module) -> None:
        found = {}
        for key, value in net.named_parameters():
            counts, edges = np.histogram(value.detach().numpy(), bins=64)  # guilty
            found[key] = {"counts": counts.tolist(), "edges": edges.tolist()}
        (self.folder / f"{name}.json").write_text(json.dumps(found))  # guilty


def mlp(*sizes: int) -> nn.Sequential:
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def strokes(count: int) -> torch.Tensor:
    where = torch.linspace(-1, 1, SIDE)
    slant, shift = torch.rand(2, count, 1, 1) - 0.5
    return 1 - 2 * (where[:, None] - slant * where - shift).abs().clamp(max=1).flatten(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=210)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    writer, critic = mlp(NOISE, 128, 192, SIDE * SIDE), mlp(SIDE * SIDE, 192, 128, 1)
    writes = torch.optim.RMSprop(writer.parameters(), 2e-4)
    judges = torch.optim.RMSprop(critic.parameters(), 2e-4)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder), every=50 if args.fixed else 1)
        for step in range(args.steps):
            fake = writer(torch.randn(64, NOISE))
            gap = critic(fake.detach()).mean() - critic(strokes(64)).mean()
            judges.zero_grad()
            gap.backward()
            judges.step()
            for weight in critic.parameters():
                weight.data.clamp_(-0.05, 0.05)
            doubt = -critic(fake).mean()
            writes.zero_grad()
            doubt.backward()
            writes.step()
            board.update(step, {"writer": writer, "critic": critic}, fake.detach())
        print(f"the critic sees a gap of {-gap.item():.4f}")


if __name__ == "__main__":
    main()
