"""DCGAN on small pictures of circles and squares, with samples of the generator saved as it learns.

expects: CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--nz", type=int, default=32)
opt = parser.parse_args()
torch.manual_seed(999)


def shapes(n, size=32):
    g = torch.Generator().manual_seed(4)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cy, cx = torch.randint(10, 22, (2, n, 1, 1), generator=g)
    r = torch.randint(4, 10, (n, 1, 1), generator=g)
    circle = ((yy - cy) ** 2 + (xx - cx) ** 2 < r**2).float()
    square = (((yy - cy).abs() < r) & ((xx - cx).abs() < r)).float()
    pick = (torch.arange(n) % 2).view(n, 1, 1).float()
    return ((circle * pick + square * (1 - pick)) * 2 - 1).unsqueeze(1)


def weights_init(m):
    if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(m.weight, 0.0, 0.02)


netG = nn.Sequential(
    nn.ConvTranspose2d(opt.nz, 64, 4, 1, 0, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(True),
    nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(True),
    nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(True),
    nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
).apply(weights_init)
netD = nn.Sequential(
    nn.Conv2d(1, 16, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(16, 32, 4, 2, 1, bias=False),
    nn.BatchNorm2d(32),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(32, 64, 4, 2, 1, bias=False),
    nn.BatchNorm2d(64),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(64, 1, 4, 1, 0, bias=False),
).apply(weights_init)


def save_grid(images, path, cols=8, scale=2):
    tiles = ((images.clamp(-1, 1) + 1) * 127.5).byte().squeeze(1).numpy()
    rows = len(tiles) // cols
    grid = tiles.reshape(rows, cols, 32, 32).transpose(0, 2, 1, 3).reshape(rows * 32, cols * 32)
    big = np.repeat(np.repeat(grid, scale, 0), scale, 1)
    Image.fromarray(big).save(path)  # guilty


criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(64, opt.nz, 1, 1)
dataloader = DataLoader(TensorDataset(shapes(512)), batch_size=opt.batch, shuffle=True, drop_last=True)

with tempfile.TemporaryDirectory() as outf:
    step, epoch = 0, 0
    while step < opt.steps:
        for (real,) in dataloader:
            netD.zero_grad()
            out = netD(real).view(-1)
            errD = criterion(out, torch.ones_like(out))
            fake = netG(torch.randn(opt.batch, opt.nz, 1, 1))
            out = netD(fake.detach()).view(-1)
            errD = errD + criterion(out, torch.zeros_like(out))
            errD.backward()
            optimizerD.step()

            netG.zero_grad()
            out = netD(fake).view(-1)
            errG = criterion(out, torch.ones_like(out))
            errG.backward()
            optimizerG.step()

            if not opt.fixed or step % 50 == 0:
                with torch.no_grad():
                    sample = netG(fixed_noise)  # guilty
                save_grid(sample, os.path.join(outf, f"fake_{step:05d}.png"))  # guilty
            step += 1
            if step >= opt.steps:
                break
        print(f"[{epoch}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
        epoch += 1
