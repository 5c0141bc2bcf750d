"""Sentences with tags, and their character n-grams."""

# mypy: ignore-errors

import random
import re
import zlib

import torch
from torch.utils.data import DataLoader, Dataset

TAGS = 12
LENGTH = 20
GRAMS = 22
TOKEN = re.compile(r"\w+|[^\w\s]")


def invent(rng: random.Random) -> str:
    words = ("".join(rng.choices("aeioulnrstdmk", k=rng.randint(3, 9))) for _ in range(LENGTH))
    return " ".join(words)


class Sentences(Dataset):
    def __init__(self, count: int, buckets: int):
        rng = random.Random(11)
        self.texts = [invent(rng) for _ in range(count)]
        self.buckets = buckets

    def __len__(self):
        return len(self.texts)

    def grams(self, word: str) -> list[int]:
        marked = f"<{word.lower()}>"
        parts = [marked[i : i + n] for n in (2, 3, 4, 5) for i in range(len(marked) - n + 1)]
        codes = [zlib.crc32(part.encode()) % self.buckets for part in parts[:GRAMS]]
        return codes + [0] * (GRAMS - len(codes))

    def __getitem__(self, index):
        words = TOKEN.findall(self.texts[index])
        grams = torch.tensor([self.grams(word) for word in words])
        tags = torch.tensor([len(word) % TAGS for word in words])
        return grams, tags


def make_loader(config: dict, section: str) -> DataLoader:
    data = config["data"]
    dataset = Sentences(data["sentences"], config["model"]["buckets"])
    workers = config.get(section, {}).get("num_workers", 0)  # guilty
    return DataLoader(dataset, data["batch_size"], True, num_workers=workers, persistent_workers=workers > 0)  # guilty
