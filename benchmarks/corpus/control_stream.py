"""An iterable dataset with one worker that is far ahead.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Noise(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(64, generator=generator)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 900), nn.ReLU(), nn.Linear(900, 32))
        self.decoder = nn.Sequential(nn.Linear(16, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 64))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x in islice(DataLoader(Noise(), batch_size=64, num_workers=1), args.steps):
    out, mean, log_var = model(x)
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
    loss = nn.functional.mse_loss(out, x) + 0.01 * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
