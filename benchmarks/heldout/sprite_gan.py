"""A GAN that draws sprites; discriminator and generator take turns.

expects: IN106
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sprites(Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        half = rng.random((3, 24, 12)) > 0.6
        sprite = np.concatenate([half, half[:, :, ::-1]], axis=2) * rng.random((3, 1, 1))
        return torch.from_numpy(sprite.astype(np.float32) * 2 - 1)


def generator(noise):
    return nn.Sequential(
        nn.Linear(noise, 32 * 6 * 6),
        nn.Unflatten(1, (32, 6, 6)),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
        nn.Tanh(),
    )


def discriminator():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 1),
    )


def forever(loader):
    while True:
        yield from loader


def main(steps, fixed, noise=32):
    torch.manual_seed(11)
    torch.set_num_threads(1)
    loader = DataLoader(Sprites(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=fixed)
    g, d = generator(noise), discriminator()
    opt_g = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    stream = forever(loader)
    step = 0
    while step < steps:
        if fixed:
            real = next(stream)
        else:
            real = next(iter(loader))  # guilty
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = g(torch.randn(len(real), noise))
        d_loss = criterion(d(real), ones) + criterion(d(fake.detach()), zeros)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = criterion(d(fake), ones)
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        step += 1
        if step % 20 == 0:
            print(f"[{step}/{steps}] D {d_loss.item():.3f} G {g_loss.item():.3f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fixed", action="store_true")
    main(**vars(p.parse_args()))
