"""A keyword spotter on raw audio, which turns each batch into mel cepstra inside the network.

expects: HO408, HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, WORDS = 16_000, 10


def make_words(n, seed):
    """Half a second of a chirp for each word, in noise."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(RATE // 2) / RATE
    word = torch.randint(0, WORDS, (n,), generator=g)
    start = 200 + 180 * word[:, None] + 40 * torch.randn(n, 1, generator=g)
    slope = 600 * (word[:, None] % 3 - 1)
    wave = torch.sin(2 * math.pi * (start + slope * t) * t) * torch.exp(-3 * t)
    return wave + 0.1 * torch.randn(n, len(t), generator=g), word


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


class Cepstra(nn.Module):
    """Log mel energies, decorrelated by a cosine transform."""

    def __init__(self, n_fft=512, hop=160, mels=48, keep=32, fixed=False):
        super().__init__()
        self.n_fft, self.hop, self.mels, self.keep = n_fft, hop, mels, keep
        self.tables = self.build() if fixed else None

    def build(self):
        bins = self.n_fft // 2 + 1
        low, high = hz_to_mel(20.0), hz_to_mel(RATE / 2)
        edges = [mel_to_hz(low + (high - low) * i / (self.mels + 1)) for i in range(self.mels + 2)]
        freqs = torch.linspace(0, RATE / 2, bins)
        bank = torch.zeros(bins, self.mels)
        for m in range(self.mels):  # guilty
            rising = (freqs - edges[m]) / (edges[m + 1] - edges[m])  # guilty
            falling = (edges[m + 2] - freqs) / (edges[m + 2] - edges[m + 1])  # guilty
            bank[:, m] = torch.minimum(rising, falling).clamp(min=0)  # guilty
        cosine = torch.zeros(self.mels, self.keep)
        for k in range(self.keep):  # guilty
            angle = math.pi * k * (torch.arange(self.mels) + 0.5) / self.mels  # guilty
            cosine[:, k] = torch.cos(angle) * math.sqrt(2.0 / self.mels)  # guilty
        return torch.hann_window(self.n_fft), bank, cosine  # guilty

    def forward(self, wave):
        window, bank, cosine = self.tables or self.build()  # guilty
        spec = torch.stft(wave, self.n_fft, self.hop, window=window, return_complex=True)
        power = spec.abs().square().transpose(1, 2)
        return (torch.log(power @ bank + 1e-6) @ cosine).transpose(1, 2)


class Spotter(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.cepstra = Cepstra(fixed=fixed)
        self.convs = nn.Sequential(
            nn.Conv1d(32, 64, 5, 2, 2), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 64, 3, 1, 1), nn.ReLU()
        )
        self.gru = nn.GRU(64, 64, batch_first=True)
        self.out = nn.Linear(64, WORDS)

    def forward(self, wave):
        x = self.convs(self.cepstra(wave))
        return self.out(self.gru(x.transpose(1, 2))[0].mean(1))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=900)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(9)
    waves, words = make_words(1500, 5)
    model = Spotter(args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    order = torch.Generator().manual_seed(1)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(waves), (12,), generator=order)
        shift = int(torch.randint(-800, 800, (1,), generator=order))
        logits = model(torch.roll(waves[rows], shift, 1))
        loss = F.cross_entropy(logits, words[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 100 == 0:
            right = (logits.argmax(1) == words[rows]).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} right {right:.2f}")


if __name__ == "__main__":
    main()
