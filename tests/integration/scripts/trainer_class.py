"""A hand-made trainer with its own batch type and callbacks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth


@dataclass
class Example:
    x: torch.Tensor
    y: torch.Tensor


class Squares(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((8,), float(index % 7))
        return x, x.square().sum()


def gather(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> Example:
    return Example(torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples]))


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(Squares(), batch_size=12, collate_fn=gather)
        self.truth = Truth()

    def fit(self, epochs: int) -> None:
        for _ in range(epochs):
            for batch in self.loader:
                self.training_step(batch)

    def training_step(self, batch: Example) -> None:
        self.optimizer.zero_grad()
        nn.functional.smooth_l1_loss(self.model(batch.x).squeeze(1), batch.y).backward()
        self.optimizer.step()
        self.truth.step(len(batch.x))


torch.manual_seed(0)
torch.set_num_threads(1)
trainer = Trainer()
trainer.fit(4)
trainer.truth.tell()
