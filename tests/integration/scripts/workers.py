"""A loader with two workers; argv[1] is the start method. Each sample costs 4 ms, each collate 8 ms, or as long as the
machine makes of it.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from truth import Truth


class Sleeps:
    """Sleeps, and keeps the mean of how long it took: one row for each process, which all of them can read."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sums = torch.zeros(3, 2, dtype=torch.float64).share_memory_()

    def sleep(self) -> None:
        begun, worker = time.perf_counter(), get_worker_info()
        time.sleep(self._seconds)
        row = self._sums[2 if worker is None else worker.id]
        row[0] += time.perf_counter() - begun
        row[1] += 1

    @property
    def mean_ms(self) -> float:
        seconds, count = self._sums.sum(0).tolist()
        return 1e3 * seconds / count


class Slow(Dataset[torch.Tensor]):
    def __init__(self, sleeps: Sleeps) -> None:
        self._sleeps = sleeps

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> torch.Tensor:
        self._sleeps.sleep()
        return torch.full((8,), float(index))


class Collate:
    def __init__(self, sleeps: Sleeps) -> None:
        self._sleeps = sleeps

    def __call__(self, samples: list[torch.Tensor]) -> torch.Tensor:
        self._sleeps.sleep()
        return torch.stack(samples)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    method = sys.argv[1]
    workers = 0 if method == "none" else 2
    context = None if method == "none" else method
    sample, batch = Sleeps(0.004), Sleeps(0.008)
    loader = DataLoader(
        Slow(sample), 8, num_workers=workers, collate_fn=Collate(batch), multiprocessing_context=context
    )
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
    truth.tell(sample_ms=sample.mean_ms, batch_ms=batch.mean_ms)


if __name__ == "__main__":
    main()
