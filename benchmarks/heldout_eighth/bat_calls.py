"""Classifies bat species by their calls: log spectrograms of ultrasound recordings, small convolutional net.

expects: CA602, CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io
import shutil
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

RATE, LENGTH, SPECIES = 64_000, 12_288, 8
BANDS = 48


def record(rng, species):
    """One sweep per call, with the slope and the rhythm of the species."""
    time = np.arange(LENGTH) / RATE
    sound = rng.normal(0, 0.05, LENGTH)
    start, end = 9_000 + 1_900 * species, 6_000 + 1_300 * (species % 4)
    for onset in np.arange(0.01, LENGTH / RATE - 0.03, 0.04 + 0.008 * (species % 3)):
        local = time - onset - rng.uniform(0, 0.004)
        live = (local > 0) & (local < 0.02)
        phase = start * local + (end - start) * local**2 / 0.04
        sound += live * 0.5 * np.sin(2 * np.pi * phase)
    return (sound.clip(-1, 1) * 32_000).astype(np.int16)


def write_night(folder, count, seed):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(count):
        species = int(rng.integers(SPECIES))
        with wave.open(str(folder / f"{number:05d}_{species}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes(record(rng, species).tobytes())


class BandSpectrogram:
    """Log energies in bands that widen with frequency."""

    def __init__(self):
        self.window = torch.hann_window(512)
        edges = torch.logspace(0.6, np.log10(256), BANDS + 1).round().long()
        self.bank = torch.zeros(BANDS, 257)
        for band in range(BANDS):
            self.bank[band, edges[band] : max(int(edges[band + 1]), int(edges[band]) + 1)] = 1

    def __call__(self, sound):
        power = torch.stft(sound, 512, 48, window=self.window, return_complex=True).abs().square()
        bands = torch.log(self.bank @ power + 1e-4)
        return ((bands - bands.mean()) / (bands.std() + 1e-4))[None]


class Recordings(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.wav"))
        self.spectrogram = BandSpectrogram()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        with wave.open(io.BytesIO(path.read_bytes())) as source:
            frames = np.frombuffer(source.readframes(source.getnframes()), np.int16)
        sound = torch.from_numpy(frames.astype(np.float32)) / 32_768
        return self.spectrogram(sound), int(path.stem.split("_")[1])


def in_memory(recordings):
    spectrograms, species = zip(*(recordings[i] for i in range(len(recordings))))
    return TensorDataset(torch.stack(spectrograms), torch.tensor(species))


class CallNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, (2, 4), 2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((4, 2)),
            nn.Flatten(),
            nn.Linear(16 * width, SPECIES),
        )

    def forward(self, spectrograms):
        return self.layers(spectrograms)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = total = 0
    for spectrograms, species in loader:  # guilty
        right += (model(spectrograms).argmax(1) == species).sum().item()
        total += len(species)
    model.train()
    return right / total


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=320)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(11)

    folder = Path(tempfile.mkdtemp(prefix="bats_"))
    try:
        write_night(folder / "train", 288, 1)
        write_night(folder / "val", 160, 2)
        train_set = in_memory(Recordings(folder / "train"))
        val_set = Recordings(folder / "val")
        if args.fixed:
            val_set = in_memory(val_set)
        train = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
        val = DataLoader(val_set, args.batch_size)  # guilty

        model = CallNet()
        optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, nesterov=True)
        step, epoch = 0, 0
        while step < args.steps:
            for spectrograms, species in train:
                loss = F.cross_entropy(model(spectrograms), species, label_smoothing=0.05)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step == args.steps:
                    break
            epoch += 1
            accuracy = validate(model, val)  # guilty
            print(f"epoch {epoch} step {step} loss {loss.item():.3f} accuracy {accuracy:.3f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
