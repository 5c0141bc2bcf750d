"""A trainer that evaluates in each of its very short epochs.

expects: CA601
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count, seed):
        self.x = torch.randn(count, 1, 256, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"wave": self.x[i], "kind": i % 4}


class Trainer:
    def __init__(self, steps, eval_every):
        self.model = nn.Sequential(
            nn.Conv1d(1, 24, 9, 2), nn.ReLU(), nn.Conv1d(24, 32, 9, 2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(128, 4),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.train_loader = DataLoader(Waves(256, 0), batch_size=32, shuffle=True)
        self.eval_loader = DataLoader(Waves(320, 1), batch_size=64)
        self.steps, self.eval_every = steps, eval_every
        self.history = []

    def loss(self, batch):
        return nn.functional.cross_entropy(self.model(batch["wave"]), batch["kind"])

    def train_epoch(self):
        self.model.train()
        for batch in self.train_loader:
            self.optimizer.zero_grad()
            self.loss(batch).backward()
            self.optimizer.step()

    def evaluate(self):
        self.model.eval()
        with torch.inference_mode():
            losses = [self.loss(batch) for batch in self.eval_loader]  # guilty
        self.history.append(float(torch.stack(losses).mean()))

    def fit(self):
        for epoch in range(max(1, self.steps // len(self.train_loader))):
            self.train_epoch()
            if (epoch + 1) % self.eval_every == 0:
                self.evaluate()  # guilty


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(args.steps, eval_every=10 if args.fixed else 1).fit()
