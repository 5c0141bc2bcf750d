"""Rhythms of the heart from single beats, with a seldom evaluation and a saved best model.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer import Trainer


def beats(count, length, seed):
    generator = torch.Generator().manual_seed(seed)
    rhythms = torch.randint(4, (count,), generator=generator)
    time = torch.linspace(0, 6.28, length)
    waves = torch.sin(time * (1 + rhythms[:, None])) + 0.5 * torch.randn(count, length, generator=generator)
    return TensorDataset(waves, rhythms)


def main():
    settings = json.loads(Path(__file__).with_name("settings.json").read_text())
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(1)
    length, hidden = settings["length"], settings["hidden"]
    train = DataLoader(beats(settings["beats"], length, 1), settings["batch_size"], shuffle=True)
    valid = DataLoader(beats(400, length, 2), batch_size=200)
    layers = [nn.Linear(length, hidden), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(hidden, 4))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, train, valid, settings, Path(folder)).fit(settings["epochs"])


if __name__ == "__main__":
    main()
