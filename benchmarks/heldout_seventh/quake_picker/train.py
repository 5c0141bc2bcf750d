"""Picks the arrivals of P and S waves in windows of a seismic network's recordings.

expects: IN113
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
from net import PickNet, pick_loss
from records import WindowDataset, write_days
from torch.utils.data import DataLoader


def forever(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(17)
    with tempfile.TemporaryDirectory() as folder:
        days = write_days(Path(folder), days=24, seed=3)
        windows = WindowDataset(days, per_day=200, lazy=args.fixed)
        loader = DataLoader(
            windows, args.batch_size, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True
        )
        net = PickNet()
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
        for step, (waves, marks) in enumerate(forever(loader), 1):  # guilty
            loss = pick_loss(net(waves), marks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
