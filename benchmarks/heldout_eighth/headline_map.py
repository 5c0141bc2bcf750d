"""Sorts headlines into desks, and records how each of them was learned (a map of easy and hard examples).

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import shutil
import sqlite3
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, DESKS, LENGTH = 3_000, 12, 20


class Headlines(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.desks = torch.randint(DESKS, (count,), generator=g)
        topical = self.desks[:, None] * 150 + torch.randint(150, (count, LENGTH), generator=g)
        common = 1_800 + torch.randint(WORDS - 1_800, (count, LENGTH), generator=g)
        self.words = torch.where(torch.rand(count, LENGTH, generator=g) < 0.25, topical, common)
        wrong = torch.rand(count, generator=g) < 0.06
        self.desks[wrong] = torch.randint(DESKS, (int(wrong.sum()),), generator=g)

    def __len__(self):
        return len(self.desks)

    def __getitem__(self, index):
        return index, self.words[index], self.desks[index]


class Desk(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, k, padding="same") for k in (1, 3))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * width, DESKS))

    def forward(self, words):
        x = self.embedding(words).transpose(1, 2)
        return self.head(torch.cat([F.relu(conv(x)).amax(2) for conv in self.convs], 1))


class Cartography:
    """A table of what the model thought of each headline whenever it saw it."""

    def __init__(self, path, group):
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "create table seen (headline integer, step integer, confidence real, correct integer, loss real)"
        )
        self.connection.execute("create index by_headline on seen (headline)")
        self.connection.commit()
        self.group, self.open_rows = group, 0

    def record(self, row):
        self.connection.execute("insert into seen values (?, ?, ?, ?, ?)", row)
        self.open_rows += 1
        if self.open_rows >= self.group:
            self.connection.commit()  # guilty
            self.open_rows = 0

    def observe(self, step, numbers, logits, desks, losses):
        share = logits.softmax(1)
        confidence = share.gather(1, desks[:, None]).squeeze(1).tolist()
        correct = (logits.argmax(1) == desks).tolist()
        for row in zip(numbers.tolist(), [step] * len(numbers), confidence, correct, losses.tolist()):
            self.record(row)  # guilty

    def summary(self):
        self.connection.commit()
        query = "select avg(confidence), avg(correct) from seen group by headline"
        rows = self.connection.execute(query).fetchall()
        hard = sum(correct < 0.2 for _, correct in rows)
        return f"{len(rows)} headlines, {hard} of them hard"

    def close(self):
        self.connection.close()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(67)

    folder = tempfile.mkdtemp(prefix="headlines_")
    cartography = Cartography(os.path.join(folder, "map.sqlite"), group=4_000 if args.fixed else 1)  # guilty
    try:
        loader = DataLoader(Headlines(3_000, 73), args.batch_size, shuffle=True, drop_last=True)
        model = Desk()
        optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
        step = 0
        while step < args.steps:
            for numbers, words, desks in loader:
                logits = model(words)
                losses = F.cross_entropy(logits, desks, reduction="none")
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
                step += 1
                cartography.observe(step, numbers, logits.detach(), desks, losses.detach())  # guilty
                if step % 50 == 0:
                    print(f"step {step} loss {losses.mean().item():.3f}")
                if step == args.steps:
                    break
        print(cartography.summary())
    finally:
        cartography.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
