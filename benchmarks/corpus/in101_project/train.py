"""A trainer class with dict batches; its loader is made in another module.

expects: IN101
needs: either
"""
# mypy: ignore-errors

import argparse
import os
import sys
from pathlib import Path

import torch
from data import SHAPE, make_loader
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import packed


class Trainer:
    def __init__(self, loader, device):
        self.loader = loader
        self.device = device
        self.model = nn.Sequential(
            nn.Conv3d(1, 8, 3, stride=4, padding=1), nn.ReLU(), nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(128, 4),
        ).to(device)  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.done = 0

    def training_step(self, batch):
        scan = batch["scan"].to(self.device).unsqueeze(1)
        label = batch["label"].to(self.device)
        return self.criterion(self.model(scan), label)

    def fit(self, max_steps):
        while self.done < max_steps:
            for batch in self.loader:
                self.optimizer.zero_grad()
                self.training_step(batch).backward()
                self.optimizer.step()
                self.done += 1
                if self.done >= max_steps:
                    return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    workers = min(6, len(os.sched_getaffinity(0)) - 1) if args.fixed else 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    Trainer(make_loader(packed(64, SHAPE), 8, workers), device).fit(args.steps)


if __name__ == "__main__":
    main()
