"""A picture of the reconstructions in every step, written by another module.

expects: CA604
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from visuals import Gallery


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1)).to(device)
    decoder = nn.Sequential(nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
    decoder.to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 2e-3)
    gallery = Gallery("gallery", every=25 if args.fixed else 1)
    for step in range(args.steps):
        x = torch.rand(16, 1, 64, 64, device=device)
        out = decoder(encoder(x))
        loss = nn.functional.mse_loss(out, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gallery.show(step, list(zip(x[:4, 0], out.detach()[:4, 0], strict=True)))  # guilty


if __name__ == "__main__":
    main()
