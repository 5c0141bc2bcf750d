"""Two epochs over a shuffled dataset; prints what came, and what the random numbers are afterwards."""

import gc
import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, random, wait_s):
        self.random = random
        self.wait_s = wait_s

    def __len__(self):
        return 40

    def __getitem__(self, i):
        time.sleep(self.wait_s)
        noise = torch.rand(()) if self.random else 0.0
        return torch.tensor(float(i * i)) + noise, i


class Mine(DataLoader):
    def __init__(self, data, size):
        super().__init__(data, size, True)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(torch.tensor(float(i)), i) for i in range(12)])


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "plain"
    torch.manual_seed(3)
    data = Stream() if mode == "stream" else Squares(mode == "random", 0.004 if mode == "slow" else 0.0)
    loader = DataLoader(data, 4) if mode == "stream" else Mine(data, 4)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    seen = []
    for _ in range(2):
        for x, i in loader:
            optimizer.zero_grad()
            loss = nn.functional.dropout(model(x[:, None] * 1e-3), 0.5).square().mean()
            loss.backward()
            optimizer.step()
            seen += [i.tolist()]
            print("loss", loss.item().hex())
    print("TRUTH", json.dumps({"seen": seen, "after": torch.rand(2).tolist(), "workers": loader.num_workers}))
    gc.freeze()  # see truth.py
