"""Labels for short notes: a GRU over token ids, trained by a Trainer with callbacks.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import Dataset
from trainer import Trainer, TrainingArguments


class Notes(Dataset):
    def __init__(self, n=1600, length=24, vocab=12000):
        g = torch.Generator().manual_seed(2)
        self.labels = torch.randint(0, 8, (n,), generator=g)
        base = torch.randint(0, vocab // 8, (n, length), generator=g)
        self.ids = base + self.labels[:, None] * (vocab // 8) * (torch.rand(n, length, generator=g) < 0.3)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class Classifier(nn.Module):
    def __init__(self, vocab=12000, dim=96, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 8)

    def forward(self, input_ids, labels):
        states, _ = self.rnn(self.embed(input_ids))
        return nn.functional.cross_entropy(self.head(states.mean(1)), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    cli = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(out, max_steps=cli.steps, save_steps=80 if cli.fixed else 2)  # guilty
        Trainer(Classifier(), args, Notes()).train()


if __name__ == "__main__":
    main()
