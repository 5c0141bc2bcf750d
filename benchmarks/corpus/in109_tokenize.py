"""A trainer that tokenises the strings of a batch in its own step.

expects: IN109
needs: either
"""
# mypy: ignore-errors

import argparse
import re
import zlib
from dataclasses import dataclass

import torch
from making import sentences
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORD = re.compile(r"[a-e]+|[f-j]+")


@dataclass
class Settings:
    steps: int
    fixed: bool
    length: int = 64
    buckets: int = 2000


def encode(text, settings):
    ids = [zlib.crc32(piece.encode()) % settings.buckets for piece in WORD.findall(text)]  # guilty
    ids = ids[: settings.length]
    return ids + [0] * (settings.length - len(ids))


class Reviews(Dataset):
    def __init__(self, settings):
        self.texts = sentences(500, 150, 260)
        self.settings = settings

    def __len__(self):
        return self.settings.steps * 48

    def __getitem__(self, i):
        text = self.texts[i % len(self.texts)]
        return (torch.tensor(encode(text, self.settings)) if self.settings.fixed else text), i % 2


class Classifier(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.embedding = nn.Embedding(settings.buckets, 64)
        self.conv = nn.Conv1d(64, 64, 3)
        self.out = nn.Linear(64, 2)

    def forward(self, ids):
        return self.out(self.conv(self.embedding(ids).transpose(1, 2)).relu().amax(2))


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = Classifier(settings).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(Reviews(settings), batch_size=48, num_workers=1)

    def prepare(self, texts):
        return torch.tensor([encode(text, self.settings) for text in texts])  # guilty

    def run(self):
        for texts, labels in self.loader:
            ids = texts if self.settings.fixed else self.prepare(texts)  # guilty
            loss = nn.functional.cross_entropy(self.model(ids.to(self.device)), labels.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(Settings(args.steps, args.fixed)).run()
