"""Takes noise out of signals: a network scales the coefficients of their cosine transform.

expects: HO408
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def cosine_basis(size):
    """Row k is the k-th cosine, sampled at the middle of each interval."""
    place = torch.arange(size, dtype=torch.float64) + 0.5
    basis = torch.cos(math.pi / size * torch.arange(size, dtype=torch.float64)[:, None] * place)
    basis *= math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis.float()


class Denoiser(nn.Module):
    def __init__(self, size, hidden, keep_basis):
        super().__init__()
        self.size = size
        self.gate = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, size), nn.Sigmoid())
        self.register_buffer("basis", cosine_basis(size) if keep_basis else None)

    def forward(self, noisy):
        basis = self.basis
        if basis is None:
            basis = cosine_basis(self.size)  # guilty
        spectrum = noisy @ basis.T
        return (spectrum * self.gate(spectrum.abs())) @ basis


def signals(count, size):
    generator = torch.Generator().manual_seed(5)
    time = torch.linspace(0, 1, size)
    rates = torch.rand(count, 4, 1, generator=generator) * 40
    clean = torch.sin(2 * math.pi * rates * time).sum(1) / 2
    return TensorDataset(clean + 0.5 * torch.randn(clean.shape, generator=generator), clean)


class Experiment:
    def __init__(self, args):
        torch.manual_seed(5)
        self.loader = DataLoader(signals(1600, args.size), batch_size=32, shuffle=True)
        self.model = Denoiser(args.size, 384, keep_basis=args.fixed)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def training_step(self, batch):
        noisy, clean = batch
        return nn.functional.mse_loss(self.model(noisy), clean)

    def run_epoch(self):
        for batch in self.loader:
            loss = self.training_step(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=768)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    experiment = Experiment(args)
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: mse {experiment.run_epoch():.4f}")
