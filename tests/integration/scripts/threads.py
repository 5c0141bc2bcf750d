"""A training beside a thread that (argv[1]) polls in Python, waits for items, or computes natively; argv[2]: steps."""

from __future__ import annotations

import queue
import sys
import threading

import numpy as np
import torch
from torch import nn

STEPS = int(sys.argv[2])
inbox: queue.SimpleQueue[int | None] = queue.SimpleQueue()


def poll() -> None:
    while True:
        try:
            item = inbox.get_nowait()
        except queue.Empty:
            continue  # polls
        if item is None:
            return


def wait() -> None:
    while inbox.get() is not None:
        pass


def compute() -> None:
    numbers = np.random.default_rng(0).random(300_000)
    while inbox.empty():
        np.sort(numbers)


torch.set_num_threads(1)
thread = threading.Thread(target={"poll": poll, "wait": wait, "compute": compute}[sys.argv[1]], name="metrics")
thread.start()
model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(STEPS):
    loss = model(torch.randn(16, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
inbox.put(None)
thread.join()
