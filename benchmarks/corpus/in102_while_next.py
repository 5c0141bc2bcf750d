"""`while True: next(it)` over one worker that draws training pairs.

expects: IN102
needs: gpu
cpus: 8
"""
# mypy: ignore-errors

import argparse
import zlib

import numpy as np
import torch
from making import packed
from torch import nn
from torch.utils.data import DataLoader, Dataset

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=150)
p.add_argument("--fixed", action="store_true")
cfg = p.parse_args()
cfg.workers = 8 if cfg.fixed else 1


class Pairs(Dataset):
    """Two crops of the same packed image, blurred differently."""

    blobs = packed(48, (256, 256))

    def __len__(self):
        return 1 << 20

    def crop(self, image, source):
        top, left = source.integers(0, 128, 2)
        patch = image[top : top + 128, left : left + 128].astype(np.float32)
        for _ in range(source.integers(1, 4)):
            patch = (patch + np.roll(patch, 1, 0) + np.roll(patch, 1, 1)) / 3
        return torch.from_numpy(patch)[None]

    def __getitem__(self, i):
        source = np.random.default_rng(i)
        image = np.frombuffer(zlib.decompress(self.blobs[i % 48]), np.uint8).reshape(256, 256)
        return self.crop(image, source), self.crop(image, source)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
encoder = nn.Sequential(
    nn.Conv2d(1, 64, 5, 2), nn.ReLU(), nn.Conv2d(64, 128, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    nn.Linear(2048, 128),
).to(device)  # fmt: skip
optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
loader = DataLoader(Pairs(), 32, shuffle=True, num_workers=cfg.workers, pin_memory=device.type == "cuda")  # guilty
it = iter(loader)
step = 0
while True:
    try:
        one, other = next(it)
    except StopIteration:
        it = iter(loader)
        continue
    a, b = (encoder(part.to(device, non_blocking=True)) for part in (one, other))
    loss = (1 - nn.functional.cosine_similarity(a, b)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step >= cfg.steps:
        break
