"""Clips of large frames, as floats, from workers that keep up: a step that takes the same time on any machine."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 120
STEP_S = 0.012


class Clips(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.frames = torch.rand(4, 2, 768, 1024)

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self.frames[number % 4], number % 8


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Clips(), batch_size=4, num_workers=2)
    model = nn.Linear(2 * 12 * 16, 8)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x[:, :, ::64, ::64].flatten(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP_S)


if __name__ == "__main__":
    main()
