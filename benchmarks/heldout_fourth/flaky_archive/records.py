# mypy: ignore-errors
"""Records of a sensor archive. A few were cut short when the archive was copied."""

import time
import zlib

import numpy as np
import torch
from torch.utils.data import Dataset


def write_records(folder, n, length, broken_every):
    rng = np.random.default_rng(0)
    for i in range(n):
        wave = np.cumsum(rng.normal(size=(length, 6)), 0).astype(np.float32) * 0.1
        wave[:, i % 6] += np.sin(np.arange(length) / 9)
        blob = zlib.compress(wave.tobytes(), 1)
        if i % broken_every == broken_every - 1:
            blob = blob[:-40]
        (folder / f"{i:05d}.bin").write_bytes(blob)


class ArchiveError(OSError):
    pass


class SensorArchive(Dataset):
    def __init__(self, folder, cfg, known_bad=None):
        self.paths = sorted(folder.glob("*.bin"))
        self.length, self.retries, self.backoff = cfg["length"], cfg["retries"], cfg["backoff"]
        self.known_bad = known_bad or set()

    def __len__(self):
        return len(self.paths)

    def read_once(self, i):
        try:
            raw = zlib.decompress(self.paths[i].read_bytes())
        except zlib.error as e:
            raise ArchiveError(str(self.paths[i])) from e
        return np.frombuffer(raw, np.float32).reshape(self.length, 6)

    def read(self, i):
        if i in self.known_bad:
            raise ArchiveError(str(self.paths[i]))
        for attempt in range(self.retries):  # guilty
            try:
                return self.read_once(i)  # guilty
            except ArchiveError:
                time.sleep(self.backoff * 2**attempt)  # guilty
        raise ArchiveError(str(self.paths[i]))

    def __getitem__(self, i):
        try:
            wave = self.read(i)  # guilty
        except ArchiveError:
            i = (i + 1) % len(self)
            wave = self.read(i)
        x = torch.from_numpy(wave.copy()).T
        return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5), i % 6
