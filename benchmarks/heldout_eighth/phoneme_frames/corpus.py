"""Streams made-up utterances: every phoneme is a spectrum that is held for some frames."""

# mypy: ignore-errors
import numpy as np
import torch
from torch.utils.data import IterableDataset


class Utterances(IterableDataset):
    """An endless stream; utterances of a pool come in the order of their lengths, batch by batch, shuffled."""

    def __init__(self, phonemes, bands, shortest, longest, pool, batch, seed):
        self.rng = np.random.default_rng(seed)
        self.spectra = self.rng.normal(0, 1, (phonemes + 1, bands)).astype(np.float32)
        self.phonemes, self.bands = phonemes, bands
        self.shortest, self.longest = shortest, longest
        self.pool, self.batch = pool, batch

    def speak(self):
        frames = int(np.clip(self.rng.lognormal(4.5, 0.5), self.shortest, self.longest))
        count = max(2, frames // 9)
        said = self.rng.integers(1, self.phonemes + 1, count)
        ends = np.sort(self.rng.choice(np.arange(1, frames), count - 1, replace=False))
        which = np.searchsorted(ends, np.arange(frames), side="right")
        noise = self.rng.normal(0, 0.6, (frames, self.bands)).astype(np.float32)
        return torch.from_numpy(self.spectra[said[which]] + noise), torch.from_numpy(said)

    def __iter__(self):
        while True:
            pool = sorted((self.speak() for _ in range(self.pool)), key=lambda pair: len(pair[0]))
            groups = [pool[at : at + self.batch] for at in range(0, self.pool, self.batch)]
            for group in self.rng.permutation(len(groups)):
                yield from groups[group]


class Collate:
    def __init__(self, bands, max_frames=None):
        self.bands, self.max_frames = bands, max_frames

    def __call__(self, utterances):
        lengths = torch.tensor([len(frames) for frames, _ in utterances])
        span = self.max_frames or int(lengths.max())
        frames = torch.zeros(len(utterances), span, self.bands)  # guilty
        for row, (heard, _) in enumerate(utterances):
            frames[row, : len(heard)] = heard
        said = [phonemes for _, phonemes in utterances]
        return frames, lengths, torch.cat(said), torch.tensor([len(phonemes) for phonemes in said])
