"""Workers that wait for a file, compute in Python and in numpy, about as long each; argv[1] is the loader's module."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

SLOW_FILE = Path("slow")
TURN_S = 0.012


def write_slowly() -> None:
    """A named pipe is a file whose content comes slowly: whoever opens it to read waits for this."""
    while True:
        with suppress(BrokenPipeError), SLOW_FILE.open("wb", buffering=0) as file:
            time.sleep(TURN_S)
            file.write(b"x")


class Natures(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.numbers = np.random.default_rng(0).random(600_000)
        self.sines = np.empty_like(self.numbers)

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        SLOW_FILE.read_bytes()  # file
        end = time.perf_counter() + TURN_S
        while time.perf_counter() < end:  # python
            pass
        # Into memory that is there: numpy makes arrays with the interpreter in its hands, as Python code has it.
        np.sin(self.numbers, out=self.sines)  # numpy
        return torch.full((8,), float(index))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.mkfifo(SLOW_FILE)
    threading.Thread(target=write_slowly, daemon=True).start()
    kind = importlib.import_module(sys.argv[1]).DataLoader
    loader = kind(Natures(), 4, num_workers=1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
