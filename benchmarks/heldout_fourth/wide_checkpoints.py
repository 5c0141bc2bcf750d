"""Click prediction with hashed features and a hand-written trainer that keeps its last checkpoints.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

BUCKETS, FIELDS, DENSE = 60_000, 16, 13


class Clicks(IterableDataset):
    def __init__(self, batches, batch_size, seed=0):
        self.batches, self.batch_size, self.seed = batches, batch_size, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            cat = torch.randint(0, BUCKETS, (self.batch_size, FIELDS), generator=g)
            num = torch.rand(self.batch_size, DENSE, generator=g)
            y = ((cat % 7 == 0).sum(1) + num[:, 0] > 2.8).float()
            yield cat, num, y


class DeepFM(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.first = nn.EmbeddingBag(BUCKETS, 1, mode="sum", sparse=True)
        self.table = nn.Embedding(BUCKETS, dim, sparse=True)
        self.mlp = nn.Sequential(
            *(nn.Linear(FIELDS * dim + DENSE, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()), nn.Linear(256, 1)
        )

    def forward(self, cat, num):
        v = self.table(cat)
        pair = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        deep = self.mlp(torch.cat([v.flatten(1), num], 1)).squeeze(1)
        return self.first(cat).squeeze(1) + pair + deep


class ModelCheckpoint:
    def __init__(self, dirpath, every_n_train_steps=1, save_top_k=2):
        self.dirpath, self.every, self.keep = dirpath, every_n_train_steps, save_top_k
        self.saved = []

    def on_train_batch_end(self, trainer):
        if trainer.global_step % self.every:
            return
        path = os.path.join(self.dirpath, f"step={trainer.global_step}.ckpt")
        torch.save(trainer.state(), path)  # guilty
        self.saved.append(path)
        while len(self.saved) > self.keep:
            os.remove(self.saved.pop(0))


class Trainer:
    def __init__(self, model, callbacks, max_steps):
        self.model, self.callbacks, self.max_steps = model, callbacks, max_steps
        sparse = [model.first.weight, model.table.weight]
        self.optimizers = [
            torch.optim.SparseAdam(sparse, lr=1e-3),
            torch.optim.Adam(model.mlp.parameters(), lr=1e-3),
        ]
        self.global_step = 0

    def state(self):
        return {
            "step": self.global_step,
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
        }

    def fit(self, loader):
        loss_fn = nn.BCEWithLogitsLoss()
        for cat, num, y in loader:
            loss = loss_fn(self.model(cat, num), y)
            for o in self.optimizers:
                o.zero_grad()
            loss.backward()
            for o in self.optimizers:
                o.step()
            self.global_step += 1
            for callback in self.callbacks:
                callback.on_train_batch_end(self)  # guilty
            if self.global_step % 50 == 0:
                print(f"step {self.global_step}: {loss.item():.4f}")
            if self.global_step >= self.max_steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        checkpoint = ModelCheckpoint(tmp, every_n_train_steps=50 if args.fixed else 2)
        data = DataLoader(Clicks(args.steps, 512), batch_size=None)
        Trainer(DeepFM(), [checkpoint], args.steps).fit(data)
