"""A vector-quantised autoencoder of mel spectrograms of birdsong.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MELS, FRAMES = 40, 256


def make_songs(count, seed):
    rng = np.random.default_rng(seed)
    mel = np.arange(MELS, dtype=np.float32)[None, :, None]
    time = np.linspace(0, 1, FRAMES, dtype=np.float32)[None, None, :]
    songs = np.zeros((count, MELS, FRAMES), dtype=np.float32)
    for _ in range(2):
        base, swing = rng.uniform(8, 32, (count, 1, 1)), rng.uniform(1, 7, (count, 1, 1))
        rate, phase = rng.uniform(2, 12, (count, 1, 1)), rng.uniform(0, 6.28, (count, 1, 1))
        pitch = (base + swing * np.sin(6.28 * rate * time + phase)).astype(np.float32)
        songs += np.exp(-((mel - pitch) ** 2) / 4)
    songs += 0.05 * rng.standard_normal(songs.shape, dtype=np.float32)
    return torch.from_numpy(songs)


class Codebook(nn.Module):
    def __init__(self, codes, width, fixed, commitment=0.25):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, width) * 0.5)
        self.fixed, self.commitment = fixed, commitment

    @torch.no_grad()
    def nearest(self, flat):
        if self.fixed:
            distance = self.codes.pow(2).sum(1) - 2 * flat @ self.codes.T
        else:
            distance = (flat[:, None, :] - self.codes[None, :, :]).pow(2).sum(2)  # guilty
        return distance.argmin(1)

    def forward(self, x):
        batch, width, length = x.shape
        flat = x.transpose(1, 2).reshape(-1, width)
        index = self.nearest(flat)  # guilty
        chosen = self.codes[index]
        loss = F.mse_loss(chosen, flat.detach()) + self.commitment * F.mse_loss(flat, chosen.detach())
        passed = flat + (chosen - flat).detach()
        return passed.view(batch, length, width).transpose(1, 2), index, loss


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.wide = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.point = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.point(F.relu(self.wide(F.relu(x))))


class SongCoder(nn.Module):
    def __init__(self, width=96, latent=48, codes=256, fixed=False):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(MELS, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv1d(width, width, 4, 2, 1),
            Residual(width, 1),
            Residual(width, 3),
            nn.Conv1d(width, latent, 1),
        )
        self.codebook = Codebook(codes, latent, fixed)
        self.decoder = nn.Sequential(
            nn.Conv1d(latent, width, 3, padding=1),
            Residual(width, 3),
            Residual(width, 1),
            nn.ConvTranspose1d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(width, MELS, 4, 2, 1),
        )

    def forward(self, songs):
        latent, index, loss = self.codebook(self.encoder(songs))
        return self.decoder(latent), index, loss


def perplexity(index, codes):
    share = torch.bincount(index, minlength=codes) / len(index)
    return torch.exp(-(share * (share + 1e-9).log()).sum()).item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(23)

    songs = make_songs(800, 3)
    model = SongCoder(fixed=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)
    for step in range(1, args.steps + 1):
        batch = songs[torch.randint(len(songs), (args.batch_size,))]
        decoded, index, quantisation = model(batch)
        loss = F.l1_loss(decoded, batch) + quantisation
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            used = perplexity(index, len(model.codebook.codes))
            print(f"step {step} loss {loss.item():.4f} perplexity {used:.1f}")


if __name__ == "__main__":
    main()
