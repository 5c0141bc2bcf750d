"""Probabilistic forecasts of household electricity use for the next day, set up by a YAML file.

expects: CF801, IN105
needs: cpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import torch
import yaml
from data import LoadWindows, make_loader
from model import Forecaster, pinball


class Fit:
    def __init__(self, cfg, fixed):
        data = cfg["data"]
        windows = LoadWindows(data, cfg["train"]["windows_per_epoch"])
        extra = {"persistent_workers": cfg["loader"]["persistent_workers"]} if fixed else {}
        self.loader = make_loader(windows, cfg["loader"], **extra)
        self.model = Forecaster(cfg["model"]["channels"], cfg["model"]["levels"], data["horizon"])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg["train"]["lr"])
        self.done = 0

    def epoch(self, limit):
        total, count = 0.0, 0
        for past, future in self.loader:  # guilty
            loss = pinball(self.model(past), future)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, count = total + loss.item(), count + 1
            self.done += 1
            if self.done == limit:
                break
        return total / count


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=520)
    cli.add_argument("--config", default=Path(__file__).with_name("config.yaml"))
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    cfg = yaml.safe_load(Path(args.config).read_text())
    fit = Fit(cfg, args.fixed)
    epoch = 0
    while fit.done < args.steps:
        loss = fit.epoch(args.steps)
        epoch += 1
        if epoch % 20 == 0:
            print(f"epoch {epoch} step {fit.done} pinball {loss:.4f}")


if __name__ == "__main__":
    main()
