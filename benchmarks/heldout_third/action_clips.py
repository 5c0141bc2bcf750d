"""Action recognition on short clips cut from compressed recordings.

expects: IN108
needs: cpu
"""

# mypy: ignore-errors
import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, SIZE, ACTIONS = 8, 40, 4


def recording(rng, action, frames):
    t = np.arange(frames)
    base = rng.integers(0, 60, (frames, SIZE, SIZE), dtype=np.uint8)
    row = (SIZE / 2 + 12 * np.sin(t / 3 + action)).astype(int)
    col = (SIZE / 2 + 12 * np.cos(t * (action + 1) / 6)).astype(int)
    for i in range(frames):
        base[i, row[i] : row[i] + 6, col[i] : col[i] + 6] = 255
    return zlib.compress(base.tobytes(), 1)


class Clips(Dataset):
    def __init__(self, n, trim):
        rng = np.random.default_rng(31)
        self.blobs, self.labels = [], rng.integers(0, ACTIONS, n)
        for i, action in enumerate(self.labels):
            long = i % 64 == 17 and not trim
            blob = recording(rng, int(action), 12)
            self.blobs.append([blob] * (4000 if long else 1))

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        parts = [np.frombuffer(zlib.decompress(b), np.uint8) for b in self.blobs[i]]  # guilty
        video = np.concatenate(parts).reshape(-1, SIZE, SIZE)  # guilty
        start = int(torch.randint(0, 12 - FRAMES, ()))
        clip = video[start : start + FRAMES].astype(np.float32) / 255
        return torch.from_numpy(clip)[None], int(self.labels[i])


class C3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool3d(2),
            nn.Flatten(),
            nn.LazyLinear(ACTIONS),
        )

    def forward(self, x):
        return self.net(x)


def train(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Clips(320, args.fixed), 4, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    model = C3D()
    model(torch.zeros(1, 1, FRAMES, SIZE, SIZE))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while True:
        for clip, label in loader:  # guilty
            loss = nn.functional.cross_entropy(model(clip), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    train(parser.parse_args())
