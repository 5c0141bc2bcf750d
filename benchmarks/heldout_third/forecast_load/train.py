"""A GRU that forecasts the load of forty meters a day ahead.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile

import numpy as np
import settings
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, meters, hidden, layers, horizon):
        super().__init__()
        self.horizon, self.meters = horizon, meters
        self.rnn = nn.GRU(meters, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, meters * horizon)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).view(-1, self.horizon, self.meters)


def series(cfg, hours=4000):
    rng = np.random.default_rng(60)
    t = np.arange(hours)[:, None]
    scale = np.array([m["scale"] for m in cfg["meters"]])
    daily = np.sin(t / 24 * 6.2832 + rng.uniform(0, 6, len(scale)))
    return torch.from_numpy((scale * daily + rng.normal(0, 0.2, (hours, len(scale)))).astype(np.float32))


def windows(data, cfg, batch):
    span = cfg["model"]["window"]
    start = torch.randint(0, len(data) - span - cfg["model"]["horizon"], (batch, 1))
    x = data[start + torch.arange(span)]
    return x, data[start + span + torch.arange(cfg["model"]["horizon"])]


def main(args):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = settings.write_defaults(folder)
        cfg = settings.load(path)
        data = series(cfg)
        m = cfg["model"]
        model = Forecaster(data.shape[1], m["hidden"], m["layers"], m["horizon"])
        optimizer = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"], betas=tuple(cfg["optim"]["betas"]))
        for step in range(args.steps):
            if not args.fixed:
                cfg = settings.load(path)  # guilty
            for group in optimizer.param_groups:
                group["lr"] = cfg["optim"]["lr"]
            x, y = windows(data, cfg, 16)
            pred = model(x)
            loss = nn.functional.mse_loss(pred, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg["optim"]["clip"])
            optimizer.step()
            if step % cfg["log"]["every"] == 0:
                print(step, f"loss {loss.item():.4f} mae {(pred - y).abs().mean().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
