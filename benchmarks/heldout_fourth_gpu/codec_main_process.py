"""A neural audio codec: waveforms go through noise, gain and a room's echo on the host before they are encoded.

expects: IN101, IN118
needs: gpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, n, length, seed=0):
        self.n, self.length, self.seed = n, length, seed
        rng = np.random.default_rng(seed)
        self.rooms = [rng.normal(size=2048) * np.exp(-np.arange(2048) / 300) for _ in range(16)]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed + i)
        t = np.arange(self.length) / 16000
        clean = sum(
            np.sin(2 * np.pi * f * t + p) for f, p in zip(rng.uniform(80, 2000, 4), rng.uniform(0, 6, 4), strict=True)
        )
        n = 2 * self.length
        room = self.rooms[int(rng.integers(16))]
        wet = np.fft.irfft(np.fft.rfft(clean, n) * np.fft.rfft(room, n), n)[: self.length]  # guilty
        noisy = wet / (np.abs(wet).max() + 1e-6) * rng.uniform(0.3, 1) + rng.normal(0, 0.01, self.length)  # guilty
        clean = clean / 4
        return torch.from_numpy(noisy.astype(np.float32))[None], torch.from_numpy(clean.astype(np.float32))[None]


class Res(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.a = nn.Conv1d(dim, dim, 7, padding=3 * dilation, dilation=dilation)
        self.b = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        return x + self.b(F.elu(self.a(F.elu(x))))


class Codec(nn.Module):
    def __init__(self, width):
        super().__init__()
        down, up, dim = [nn.Conv1d(1, width, 7, padding=3)], [], width
        for s in (2, 4, 4):
            down += [Res(dim, 1), Res(dim, 3), nn.ELU(), nn.Conv1d(dim, 2 * dim, 2 * s, s, s // 2)]
            up = [nn.ConvTranspose1d(2 * dim, dim, 2 * s, s, s // 2), Res(dim, 1), Res(dim, 3), *up]
            dim *= 2
        self.encoder, self.decoder = nn.Sequential(*down), nn.Sequential(*up, nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def spectral_loss(a, b, sizes=(512, 1024, 2048)):
    total = 0.0
    for n in sizes:
        window = torch.hann_window(n, device=a.device)
        sa, sb = (torch.stft(v.squeeze(1).float(), n, n // 4, window=window, return_complex=True).abs() for v in (a, b))
        total = total + F.l1_loss(sa, sb) / len(sizes)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    cuda = args.device != "cpu"
    device = torch.device(args.device)
    batch, length, width = (24, 16384, 80) if cuda else (2, 4096, 8)
    workers = {"num_workers": 8, "persistent_workers": True} if args.fixed and cuda else {}
    data = Waves(batch * args.steps, length)
    loader = DataLoader(data, batch, shuffle=True, pin_memory=cuda, **workers)  # guilty
    model = Codec(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.8, 0.99), fused=cuda)
    for step, (noisy, clean) in enumerate(loader, 1):  # guilty
        noisy, clean = noisy.to(device, non_blocking=True), clean.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            out = model(noisy)
        loss = F.l1_loss(out.float(), clean) + spectral_loss(out, clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
