"""`gc.collect()` in every step, beside many living objects.

expects: HO404
needs: either
"""
# mypy: ignore-errors

import argparse
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Annotations(Dataset):
    """Keeps its annotations as Python objects, as such files come."""

    def __init__(self, count):
        self.rows = [{"id": i, "box": [i, i + 1, i + 2, i + 3], "tags": {"kind": str(i % 9)}} for i in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i]["box"], dtype=torch.float32) / len(self.rows), int(self.rows[i]["id"] % 9)


def step(model, batch, optimizer, device):
    x, y = (part.to(device) for part in batch)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Annotations(40_000), batch_size=64, shuffle=True)
    net = nn.Sequential(nn.Linear(4, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 9)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(loader, 1):
        step(net, batch, optimizer, device)
        if not args.fixed:
            gc.collect()  # guilty
        if number == args.steps:
            break
