"""The step measures the processor's load over an interval, and waits for it.

expects: SY305
needs: either
"""
# mypy: ignore-errors

import argparse

import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LoadMeter:
    def __init__(self, on):
        self.on = on
        self.readings = []

    def after_step(self):
        if self.on:
            self.readings.append(psutil.cpu_percent(interval=0.03))  # guilty


def fit(model, loader, optimizer, meter, device, steps):
    done = 0
    for _ in range(1000):
        for features, target in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features.to(device)), target.to(device)).backward()
            optimizer.step()
            meter.after_step()
            done += 1
            if done == steps:
                return


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(4096, 200), torch.randn(4096, 4))
    loader = DataLoader(data, batch_size=128, shuffle=True)
    model = nn.Sequential(nn.Linear(200, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    fit(model, loader, optimizer, LoadMeter(not args.fixed), device, args.steps)
