"""A loader with two workers; argv[1] is the start method. Each sample costs 4 ms, each collate 8 ms."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.full((8,), float(index))


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    time.sleep(0.008)
    return torch.stack(samples)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    method = sys.argv[1]
    workers = 0 if method == "none" else 2
    context = None if method == "none" else method
    loader = DataLoader(Slow(), 8, num_workers=workers, collate_fn=collate, multiprocessing_context=context)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    truth = Truth()
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth.step(len(x))
        print(f"loss {loss.detach():.9f}")
    truth.tell()


if __name__ == "__main__":
    main()
