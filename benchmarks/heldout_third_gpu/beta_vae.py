"""A convolutional beta-VAE with residual stages.

expects: HO405
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x):
        return x + self.body(x)


class VAE(nn.Module):
    def __init__(self, width, latent, side):
        super().__init__()
        w = width
        self.encoder = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1),
            Residual(w),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            Residual(2 * w),
            Residual(2 * w),
            nn.Conv2d(2 * w, 4 * w, 4, 2, 1),
            Residual(4 * w),
            Residual(4 * w),
        )
        self.small = side // 8
        self.to_latent = nn.Linear(4 * w * self.small**2, 2 * latent)
        self.from_latent = nn.Linear(latent, 4 * w * self.small**2)
        self.decoder = nn.Sequential(
            Residual(4 * w),
            Residual(4 * w),
            nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1),
            Residual(2 * w),
            Residual(2 * w),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            Residual(w),
            nn.ConvTranspose2d(w, 3, 4, 2, 1),
        )

    def forward(self, x):
        mean, logvar = self.to_latent(self.encoder(x).flatten(1)).float().chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        h = self.from_latent(z).unflatten(1, (-1, self.small, self.small))
        h = h.contiguous(memory_format=torch.channels_last)
        return self.decoder(h), mean, logvar


def elbo(picture, rebuilt, mean, logvar, beta):
    likelihood = F.mse_loss(rebuilt.float(), picture, reduction="sum") / len(picture)
    divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
    return likelihood + beta * divergence


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--beta", type=float, default=2.0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.backends.cudnn.benchmark = True
    if not args.fixed:
        torch.autograd.set_detect_anomaly(True)  # guilty
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side, width, batch = (16, 8, 4) if args.tiny else (64, 64, 192)
    coarse = torch.rand(8 * batch, 3, 8, 8, device=device)
    pictures = F.interpolate(coarse, size=side, mode="bicubic").contiguous(memory_format=torch.channels_last)
    model = VAE(width, 64, side).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True)
    for step in range(args.steps):
        picture = pictures[step % 8 * batch : (step % 8 + 1) * batch]
        beta = args.beta * min(1.0, step / 200)
        with torch.autocast(device, dtype=torch.bfloat16):
            rebuilt, mean, logvar = model(picture)
        loss = elbo(picture, rebuilt, mean, logvar, beta)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step:4d} {loss.item():10.2f}")


if __name__ == "__main__":
    main()
