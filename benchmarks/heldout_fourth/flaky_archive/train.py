"""Fault types from sensor records: an archive of compressed files, a config in YAML, a temporal conv net.

expects: IN108
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
import yaml
from records import SensorArchive, write_records
from torch import nn
from torch.utils.data import DataLoader


class TCN(nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        self.stem = nn.Conv1d(6, channels, 7, 2, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(channels, channels, 3, padding=2**k, dilation=2**k), nn.BatchNorm1d(channels), nn.GELU()
            )
            for k in range(depth)
        )
        self.head = nn.Linear(channels, 6)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(-1))


def train(cfg, folder, steps, fixed):
    torch.manual_seed(cfg["seed"])
    d = cfg["data"]
    known_bad = set(range(d["broken_every"] - 1, d["records"], d["broken_every"])) if fixed else None
    data = SensorArchive(folder, d, known_bad)
    loader = DataLoader(data, shuffle=True, drop_last=True, **cfg["loader"])
    model = TCN(**cfg["model"])
    optimizer = torch.optim.AdamW(model.parameters(), **cfg["optim"])
    step = 0
    while step < steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step >= steps:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("config.yaml"))
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text())
    with tempfile.TemporaryDirectory() as tmp:
        data_cfg = config["data"]
        write_records(Path(tmp), data_cfg["records"], data_cfg["length"], data_cfg["broken_every"])
        train(config, Path(tmp), args.steps, args.fixed)
