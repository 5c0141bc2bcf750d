"""A training whose best settings are known only by trying: samples that take a while, and a device that is asleep.

The device's time for a batch is slept on the host, as one waits for a GPU; samples wait as for a disk.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, torch.Tensor]


class Samples(Dataset[Sample]):
    def __init__(self, each_s: float) -> None:
        self._each_s = each_s

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, at: int) -> Sample:
        time.sleep(self._each_s)
        return torch.ones(64), torch.ones(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample-ms", type=float, default=4.0)
    parser.add_argument("--start-ms", type=float, default=4.0, help="the device's time for a batch of nothing")
    parser.add_argument("--each-ms", type=float, default=0.5, help="and for each of its samples")
    parser.add_argument("--batch", type=int, default=8)
    o = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for x, y in DataLoader(Samples(o.sample_ms / 1000), o.batch, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        time.sleep((o.start_ms + o.each_ms * len(x)) / 1000)
        optimizer.step()


if __name__ == "__main__":
    main()
