"""A convolutional VAE on sprites that are drawn as they are asked for.

expects: IN105
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class Sprites(Dataset):
    def __init__(self, n=128, size=32):
        self.n, self.size = n, size
        self.yy, self.xx = np.mgrid[:size, :size]
        self.spec = np.random.default_rng(6).uniform(0.2, 0.8, (n, 4))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        cy, cx, r, tone = self.spec[i]
        d = np.hypot(self.yy - cy * self.size, self.xx - cx * self.size)
        return torch.from_numpy((d < r * 10).astype(np.float32) * np.float32(tone))[None]


class VAE(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(2048, latent), nn.Linear(2048, latent)
        self.dec = nn.Sequential(
            nn.Linear(latent, 2048),
            nn.ReLU(),
            nn.Unflatten(1, (32, 8, 8)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / len(x)


def train(epoch, model, loader, optimizer, left):
    model.train()
    total = 0.0
    done = 0
    for data in loader:  # guilty
        if done == left:
            break
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        total += loss.item()
        optimizer.step()
        done += 1
    if epoch % 10 == 0:
        print(f"====> Epoch: {epoch} Average loss: {total / max(1, done):.4f}")
    return done


def main():
    parser = argparse.ArgumentParser(description="VAE")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    workers = {"num_workers": 2, "persistent_workers": args.fixed}
    loader = DataLoader(Sprites(), batch_size=args.batch_size, shuffle=True, **workers)  # guilty
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    done, epoch = 0, 0
    while done < args.steps:
        done += train(epoch, model, loader, optimizer, args.steps - done)  # guilty
        epoch += 1


if __name__ == "__main__":
    main()
