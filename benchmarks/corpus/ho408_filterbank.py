"""A loss on spectra that makes its mel filters and its window again at every call.

expects: HO408
needs: either
"""
# mypy: ignore-errors

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 16000


def mel(frequency):
    return 2595 * math.log10(1 + frequency / 700)


def filters(bins=257, count=64):
    """Triangles on the mel scale."""
    edges = [700 * (10 ** (mel(RATE / 2) * i / (count + 1) / 2595) - 1) for i in range(count + 2)]
    places = [RATE / 2 * k / (bins - 1) for k in range(bins)]
    sides = list(zip(edges, edges[1:], edges[2:], strict=False))
    rows = [[max(0.0, min((f - a) / (b - a), (c - f) / (c - b))) for f in places] for a, b, c in sides]  # guilty
    return torch.tensor(rows)  # guilty


class MelLoss(nn.Module):
    def __init__(self, once):
        super().__init__()
        self.register_buffer("kept", filters() if once else None, persistent=False)
        self.register_buffer("window", torch.hann_window(512), persistent=False)

    def spectrum(self, wave):
        bank = self.kept
        if bank is None:
            bank = filters().to(wave.device)  # guilty
        return torch.log1p(bank @ torch.stft(wave, 512, 128, window=self.window, return_complex=True).abs())

    def forward(self, made, wanted):
        return (self.spectrum(made) - self.spectrum(wanted)).abs().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    waves = torch.randn(64, 1, 2048)
    loader = DataLoader(TensorDataset(waves), batch_size=4, shuffle=True, pin_memory=on_gpu)
    net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Tanh(), nn.Conv1d(8, 1, 9, padding=4)).to(device)
    criterion = MelLoss(args.fixed).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    done = 0
    while done < args.steps:
        for (wave,) in loader:
            wave = wave.to(device, non_blocking=True)
            made = net(wave + 0.1 * torch.randn_like(wave))
            loss = criterion(made.squeeze(1), wave.squeeze(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == args.steps:
                break


if __name__ == "__main__":
    main()
