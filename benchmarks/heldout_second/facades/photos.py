"""Photographs of facades."""

# mypy: ignore-errors

import config
import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from transforms import training_chain


class Facades(Dataset):
    def __init__(self, count, chain):
        rng = np.random.default_rng(6)
        small = rng.integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
        self.photos = [Image.fromarray(one).resize((config.PHOTO, config.PHOTO)) for one in small]
        self.count, self.chain = count, chain

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return self.chain(self.photos[index % len(self.photos)], rng)


def loader(count, crop_first):
    facades = Facades(count, training_chain(config.CROP, crop_first))
    return DataLoader(facades, config.BATCH, num_workers=config.WORKERS)  # guilty
