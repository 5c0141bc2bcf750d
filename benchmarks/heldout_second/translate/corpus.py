"""Sentence pairs: the target is the source read backwards with every word moved by one."""

# mypy: ignore-errors

import torch
from torch.utils.data import DataLoader, TensorDataset


class Corpus:
    def __init__(self, config: dict):
        self.config = config
        self.generator = torch.Generator().manual_seed(17)

    def pairs(self, count: int) -> TensorDataset:
        source = torch.randint(1, self.config["vocabulary"], (count, self.config["length"]), generator=self.generator)
        return TensorDataset(source, (source.flip(1) + 1) % self.config["vocabulary"])

    def train_loader(self) -> DataLoader:
        part = self.config["train"]
        return DataLoader(self.pairs(part["sentences"]), part["batch_size"], shuffle=part["shuffle"])

    def dev_loader(self) -> DataLoader:
        part = self.config["dev"]
        return DataLoader(self.pairs(part["sentences"]), part["batch_size"], shuffle=part["shuffle"])  # guilty
