"""A configuration file asks for workers; the loader is made with a number written in the code.

expects: CF801, IN101
needs: either
"""
# mypy: ignore-errors

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).parent


class Walks(Dataset):
    """Random walks, simulated when they are asked for."""

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        source = torch.Generator().manual_seed(i)
        steps, place, path = torch.randint(0, 2, (900,), generator=source).tolist(), 0, []
        for step in steps:
            place += 2 * step - 1
            path.append(place)
        return torch.tensor(path[::6], dtype=torch.float32), torch.tensor(float(place > 0))


def make_loader(data, fixed):
    if fixed:
        return DataLoader(Walks(), **data)
    return DataLoader(Walks(), batch_size=data["batch_size"], num_workers=0)  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=HERE / "config.json")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    config = json.loads(args.config.read_text())
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(150, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["optimizer"]["lr"])
    for step, (walk, up) in enumerate(make_loader(config["data"], args.fixed)):
        if step == args.steps:
            break
        out = model(walk.to(device)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(out, up.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
