"""Number plates, drawn when they are asked for."""

# mypy: ignore-errors

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

ALPHABET = "0123456789ABCDEFGHJKLMNPRSTUVWXYZ"


class Plates(Dataset):
    def __init__(self, config: dict, count: int, seed: int):
        self.size = (config["width"], config["height"])
        rng = np.random.default_rng(seed)
        self.codes = rng.integers(0, len(ALPHABET), (count, config["text_length"]))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int):
        code = self.codes[index]
        image = Image.new("L", self.size, 235)
        ImageDraw.Draw(image).text((6, 6), " ".join(ALPHABET[letter] for letter in code), fill=20)
        image = image.rotate(int(index % 7) - 3, fillcolor=128)
        pixels = np.asarray(image, np.float32) / 255
        return torch.from_numpy(pixels.copy())[None], torch.from_numpy(code)


def loaders(config: dict) -> tuple[DataLoader, DataLoader]:
    common = {"num_workers": config["num_workers"], "persistent_workers": True, "prefetch_factor": 4}
    train = DataLoader(Plates(config, config["plates"], 0), config["batch_size"], shuffle=True, **common)
    valid = DataLoader(Plates(config, 64, 1), 4 * config["batch_size"], **common)
    return train, valid
