"""Sentences of very different lengths, grouped by length into batches."""

# mypy: ignore-errors

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, MASK, FIRST_WORD = 0, 1, 2


class Sentences(Dataset):
    def __init__(self, settings):
        rng = np.random.default_rng(settings.seed)
        top = settings.max_length
        lengths = np.clip(rng.lognormal(np.log(top / 6), 0.55, settings.sentences), 8, top).astype(int)
        self.items = [rng.integers(FIRST_WORD, settings.vocab, n).astype(np.int64) for n in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class ByLength(Sampler):
    """Batches of sentences of about the same length, in random order."""

    def __init__(self, dataset, batch, steps, seed):
        order = sorted(range(len(dataset)), key=lambda i: len(dataset.items[i]))
        self.batches = [order[i : i + batch] for i in range(0, len(order) - batch + 1, batch)]
        self.steps, self.seed = steps, seed

    def __len__(self):
        return self.steps

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        for _ in range(self.steps):
            yield self.batches[rng.integers(len(self.batches))]


class Pad:
    def __init__(self, settings, fixed):
        self.settings, self.fixed = settings, fixed

    def __call__(self, rows):
        length = self.settings.max_length  # guilty
        if self.fixed:
            longest = max(len(row) for row in rows)
            length = min(length, -(-longest // 32) * 32)
        ids = np.full((len(rows), length), PAD, dtype=np.int64)  # guilty
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        return torch.from_numpy(ids)


def make_loader(settings, steps, fixed):
    dataset = Sentences(settings)
    return DataLoader(
        dataset,
        batch_sampler=ByLength(dataset, settings.batch, steps, settings.seed),
        collate_fn=Pad(settings, fixed),  # guilty
        num_workers=3,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=4,
    )
