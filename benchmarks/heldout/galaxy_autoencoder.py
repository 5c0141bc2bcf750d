"""Compresses pictures of galaxies, and keeps what it drew along the way for a film of the training.

expects: ME701
needs: cpu
gain: no
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn


def galaxies(batch, side=64):
    """Endless batches of tilted discs."""
    generator = torch.Generator().manual_seed(40)
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    while True:
        tilt = torch.rand(batch, 1, 1, generator=generator) * 3.14
        flat = 0.2 + torch.rand(batch, 1, 1, generator=generator)
        u, v = x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin()
        yield (-6 * (u**2 + (v / flat) ** 2)).exp().flatten(1)


class Autoencoder(nn.Module):
    def __init__(self, size=64 * 64, hidden=256):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, 24))
        self.up = nn.Sequential(nn.Linear(24, hidden), nn.ReLU(), nn.Linear(hidden, size), nn.Sigmoid())

    def forward(self, x):
        return self.up(self.down(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(40)
    torch.set_num_threads(1)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    stream, film = galaxies(args.batch), []
    for step in range(args.steps):
        pictures = next(stream)
        drawn = model(pictures)
        loss = nn.functional.mse_loss(drawn, pictures)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.fixed:
            film.append(drawn[0].detach().half().clone())
        else:
            film.append(drawn)  # guilty
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}")
    change = (film[-1] - film[0]).abs().mean().item()
    print(f"{len(film)} frames; the last differs from the first by {change:.4f}")


if __name__ == "__main__":
    main()
