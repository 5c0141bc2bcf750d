"""Bird species from field recordings, most of them a second long and some left running for minutes.

expects: IN108
needs: cpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 10
FRAME = 256
KEPT = 48


class Recordings(Dataset):
    """Recording `i` lasts one second, except every sixty-first, which lasts four minutes."""

    def __init__(self, count=2400, rate=8000, cut_first=False):
        self.seconds = [240 if i % 61 == 60 else 1 for i in range(count)]
        self.rate = rate
        self.cut_first = cut_first
        self.noise = np.random.default_rng(8).normal(0, 0.1, rate * 240).astype(np.float32)

    def __len__(self):
        return len(self.seconds)

    def loudest(self, wave):
        """The spectrogram of the stretch with the most energy."""
        frames = wave[: len(wave) // FRAME * FRAME].reshape(-1, FRAME)
        spectrum = np.log1p(np.abs(np.fft.rfft(frames * np.hanning(FRAME), axis=1)))  # guilty
        energy = np.convolve(spectrum.sum(1), np.ones(KEPT), "valid") if len(spectrum) > KEPT else np.ones(1)
        start = int(energy.argmax())
        piece = spectrum[start : start + KEPT]
        return np.pad(piece, ((0, KEPT - len(piece)), (0, 0)))

    def __getitem__(self, index):
        wave = self.noise[: self.seconds[index] * self.rate]
        if self.cut_first:
            wave = wave[: self.rate]
        pitch = np.sin(np.arange(len(wave), dtype=np.float32) * (0.1 + 0.02 * (index % SPECIES)))
        picture = self.loudest(wave + pitch)
        return torch.from_numpy(picture.astype(np.float32)), index % SPECIES


class BirdNet(nn.Module):
    def __init__(self, bins=FRAME // 2 + 1, width=96):
        super().__init__()
        self.tones = nn.Linear(bins, width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, SPECIES))

    def forward(self, pictures):
        tones = torch.relu(self.tones(pictures))
        return self.head(torch.cat([tones.mean(1), tones.amax(1)], 1))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)

recordings = Recordings(cut_first=args.fixed)
loader = DataLoader(recordings, args.batch, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
net = BirdNet()
optimizer = torch.optim.RMSprop(net.parameters(), 1e-3)
done = 0
while done < args.steps:
    for pictures, species in loader:
        loss = nn.functional.cross_entropy(net(pictures), species)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == args.steps:
            break
    print(f"after {done} steps: {loss.item():.3f}")
