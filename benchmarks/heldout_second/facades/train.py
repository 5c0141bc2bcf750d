"""Removes noise from crops of facades; the settings are a Python module.

expects: IN113
needs: cpu
"""

# mypy: ignore-errors

import argparse

import config
import photos
import torch
from torch import nn


def denoiser(channels):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(channels, 3, 3, padding=1),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    model = denoiser(config.CHANNELS)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.LR)
    for step, clean in enumerate(photos.loader(args.steps * config.BATCH, crop_first=args.fixed)):
        noise = 0.1 * torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(clean + noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 25 == 0:
            print(f"{step + 1}: noise left {loss.item():.5f}")


if __name__ == "__main__":
    main()
