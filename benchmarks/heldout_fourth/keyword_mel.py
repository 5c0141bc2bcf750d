"""Keyword spotting: spectrograms of short wave files, a depthwise-separable net, one trainer class.

expects: IN110, IN118, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, WORDS = 8000, 1.0, 6


def write_corpus(folder, n=240):
    rng = np.random.default_rng(3)
    t = np.arange(int(RATE * SECONDS)) / RATE
    for i in range(n):
        f = 200 * (1 + i % WORDS)
        sig = np.sin(2 * np.pi * f * t * (1 + 0.2 * t)) + 0.3 * rng.standard_normal(t.size)
        with wave.open(os.path.join(folder, f"{i % WORDS}_{i:05d}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes((sig * 8000).astype("<i2").tobytes())


def mel_matrix(n_fft, n_mels):
    hz = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 1400), n_mels + 2) / 2595) - 1)
    bins = np.floor((n_fft + 1) * hz / RATE).astype(int)
    bank = np.zeros((n_mels, n_fft // 2 + 1))
    for m in range(n_mels):
        a, b, c = bins[m : m + 3]
        bank[m, a:b] = (np.arange(a, b) - a) / max(b - a, 1)
        bank[m, b:c] = (c - np.arange(b, c)) / max(c - b, 1)
    return bank


class Commands(Dataset):
    def __init__(self, folder, keep=False):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.window = np.hanning(256)
        self.bank = mel_matrix(256, 40)
        self.keep = {} if keep else None

    def __len__(self):
        return len(self.paths)

    def features(self, path):
        with wave.open(path, "rb") as f:
            sig = np.frombuffer(f.readframes(f.getnframes()), "<i2") / 32768.0
        frames = np.lib.stride_tricks.sliding_window_view(sig, 256)[::40] * self.window  # guilty
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2  # guilty
        logmel = np.log(power @ self.bank.T + 1e-6)  # guilty
        dct = np.cos(np.pi / 40 * (np.arange(40) + 0.5)[None] * np.arange(40)[:, None])
        mfcc = logmel @ dct.T
        both = np.stack([logmel, mfcc])
        both = (both - both.mean((1, 2), keepdims=True)) / both.std((1, 2), keepdims=True)  # guilty
        return torch.from_numpy(both.astype(np.float32))

    def __getitem__(self, index):
        path = self.paths[index]
        label = int(os.path.basename(path)[0])
        if self.keep is None:
            return self.features(path), label  # guilty
        if path not in self.keep:
            self.keep[path] = self.features(path)
        return self.keep[path], label


def ds_conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, stride, 1, groups=cin),
        nn.BatchNorm2d(cin),
        nn.ReLU(),
        nn.Conv2d(cin, cout, 1),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
    )


class Trainer:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.global_step = 0

    def training_step(self, batch):
        feats, labels = batch
        shift = int(torch.randint(-8, 9, ()))
        loss = self.criterion(self.model(torch.roll(feats, shift, 2)), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, max_steps):
        while self.global_step < max_steps:
            running = 0.0
            for batch in self.loader:
                running += self.training_step(batch)
                self.global_step += 1
                if self.global_step == max_steps:
                    break
            print(f"step {self.global_step}: loss {float(running) / len(self.loader):.4f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    opts = cli.parse_args()
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as tmp:
        write_corpus(tmp)
        data = Commands(tmp, keep=opts.fixed)
        net = nn.Sequential(
            nn.Conv2d(2, 12, 5, 4, 2),
            ds_conv(12, 24),
            ds_conv(24, 32, 2),
            ds_conv(32, 48),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(48, WORDS),
        )
        Trainer(net, DataLoader(data, opts.batch, shuffle=True, drop_last=True), 2e-3).fit(opts.steps)
