"""Hand gestures from a wristband, each stored as a small JSON file.

expects: IN114
needs: cpu
"""

# mypy: ignore-errors

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS_KEPT, AXES, GESTURES = 24, 6, 7


def record(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        signal = rng.normal(size=(STEPS_KEPT, AXES)).round(3).tolist()
        document = {"gesture": number % GESTURES, "device": "band-2", "signal": signal}
        (folder / f"{number:05d}.json").write_text(json.dumps(document))


class FromFiles(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.json"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            document = json.load(file)  # guilty
        return torch.tensor(document["signal"]), document["gesture"]


class Packed(Dataset):
    """The same gestures, gathered in two arrays."""

    def __init__(self, folder: Path):
        documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        self.signals = torch.tensor([document["signal"] for document in documents])
        self.gestures = [document["gesture"] for document in documents]

    def __len__(self):
        return len(self.gestures)

    def __getitem__(self, index):
        return self.signals[index], self.gestures[index]


def model() -> nn.Module:
    width = STEPS_KEPT * AXES
    return nn.Sequential(
        nn.Flatten(), nn.Linear(width, 320), nn.ReLU(), nn.Linear(320, 320), nn.ReLU(), nn.Linear(320, 7)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        record(Path(name), 2048)
        dataset = (Packed if args.fixed else FromFiles)(Path(name))
        loader = DataLoader(dataset, batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        seen = 0
        while seen < args.steps:
            for signals, gestures in loader:
                loss = nn.functional.cross_entropy(net(signals), gestures)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += 1
            print(f"{seen} steps, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
