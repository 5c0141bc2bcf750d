"""A transformer encoder that sorts short documents, with validation and early stopping.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class Config:
    vocab: int = 2000
    length: int = 32
    classes: int = 5
    dim: int = 64
    layers: int = 2
    batch: int = 16
    lr: float = 5e-4
    val_every: int = 5
    patience: int = 1000


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok, self.pos = nn.Embedding(c.vocab, c.dim), nn.Parameter(torch.zeros(1, c.length, c.dim))
        layer = nn.TransformerEncoderLayer(c.dim, 4, 2 * c.dim, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, c.layers, enable_nested_tensor=False)
        self.out = nn.Linear(c.dim, c.classes)

    def forward(self, ids):
        return self.out(self.body(self.tok(ids) + self.pos).mean(1))


def documents(c, n):
    g = torch.Generator().manual_seed(21)
    y = torch.randint(0, c.classes, (n,), generator=g)
    ids = torch.randint(0, c.vocab, (n, c.length), generator=g)
    marked = torch.rand(n, c.length, generator=g) < 0.15
    return TensorDataset(torch.where(marked, y[:, None] * 7 + ids % 7, ids), y)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hit = total = 0
    for ids, y in loader:  # guilty
        hit += (model(ids).argmax(-1) == y).sum().item()  # guilty
        total += len(y)
    model.train()
    return hit / total


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.bad, self.patience = 0.0, 0, patience

    def update(self, value):
        self.bad = 0 if value > self.best else self.bad + 1
        self.best = max(self.best, value)
        return self.bad > self.patience


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    c = Config(val_every=55) if args.fixed else Config()  # guilty
    torch.manual_seed(0)
    train_set, val_set = random_split(documents(c, 1500), [1100, 400])
    train_loader = DataLoader(train_set, c.batch, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 100)
    model = Encoder(c)
    optimizer = torch.optim.AdamW(model.parameters(), c.lr)
    stopper = EarlyStopping(c.patience)
    step = 0
    while step < args.steps:
        for ids, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(ids), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % c.val_every == 0:
                accuracy = validate(model, val_loader)  # guilty
                if stopper.update(accuracy):
                    return
            if step >= args.steps:
                break
    print(f"best accuracy {stopper.best:.3f}, last loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
