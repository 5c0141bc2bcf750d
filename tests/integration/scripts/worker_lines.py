"""Two workers whose time goes to two lines of the dataset, and whose cache evicts; argv[1] is the start method."""

from __future__ import annotations

import gc
import json
import multiprocessing
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spinning(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.cache:
            if len(self.cache) == 4:
                del self.cache[next(iter(self.cache))]
            self.cache[index] = torch.full((8,), float(index))
        time.sleep(0.009)  # dear
        time.sleep(0.003)  # cheap
        # Drawn from the worker's own generators: whoever else draws from them shows.
        return self.cache[index] + random.random() + torch.rand(())


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Spinning(), 4, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.detach():.9f}")
    begun = time.perf_counter()
    for child in multiprocessing.active_children():
        child.join(10)
    end_s = time.perf_counter() - begun
    print("TRUTH " + json.dumps({"end_s": end_s, "alive": len(multiprocessing.active_children())}))
    gc.freeze()  # see truth.py


if __name__ == "__main__":
    main()
