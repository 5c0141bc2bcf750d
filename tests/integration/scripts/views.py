"""Windows of a long recording, from a worker that reads it anew for each: as views of all of it, or as copies."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STEPS = 80
STEP_S = 0.004
READINGS = 5_000_000  # of four bytes each


class Windows(IterableDataset[torch.Tensor]):
    def __init__(self, copies: bool) -> None:
        self.copies = copies

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(STEPS):
            recording = torch.full((READINGS,), 0.01 * (number % 7))
            window = recording[4096 * number : 4096 * (number + 1)]
            yield (window.clone() if self.copies else window).view(16, 256)  # handed out


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Windows("--copies" in sys.argv), batch_size=None, num_workers=1)
    model = nn.Linear(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for window in loader:
        loss = model(window).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP_S)


if __name__ == "__main__":
    main()
