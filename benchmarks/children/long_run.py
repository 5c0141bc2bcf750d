"""A very long run of trivial steps that watches its own memory: `long_run.py OUT.json STEPS SAMPLES`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main() -> None:
    out, steps, samples = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    every = max(1, steps // samples)
    # Epochs of a thousand steps: memory must not grow with the number of iterators either.
    loader = DataLoader(TensorDataset(torch.randn(1000, 4, 8), torch.randn(1000, 4, 2)), batch_size=None)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    memory: list[int] = []
    done = 0
    started_s = time.perf_counter()
    while done < steps:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            done += 1
            if done % every == 0:
                memory.append(rss_bytes())
            if done == steps:
                break
    ended_s = time.perf_counter()
    out.write_text(json.dumps({"rss_bytes": memory, "started_s": started_s, "ended_s": ended_s, "steps": done}))


if __name__ == "__main__":
    main()
