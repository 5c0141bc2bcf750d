"""Forecasts the flow of rivers one day ahead with one small reservoir model per gauge.

expects: HO405
needs: cpu
"""

# mypy: ignore-errors

import argparse
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    gauges: int = 192
    window: int = 24
    batch: int = 192
    hunt_nans: bool = True
    lr: float = 1e-3


def simulate(settings: Settings, days: int = 3000) -> torch.Tensor:
    rain = torch.rand(days, settings.gauges).pow(6)
    flow = torch.zeros(days, settings.gauges)
    for day in range(1, days):
        flow[day] = 0.9 * flow[day - 1] + rain[day] + 0.05 * flow[day - 1].roll(1)
    return (flow - flow.mean(0)) / flow.std(0)


class Reservoirs(nn.Module):
    """Every gauge fills and drains a store of its own, by rates that depend on what flows in."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.gain = nn.Parameter(0.5 + 0.1 * torch.randn(settings.gauges))
        self.drain = nn.Parameter(0.1 + 0.01 * torch.randn(settings.gauges))
        self.base = nn.Parameter(torch.zeros(settings.gauges))

    def forward(self, days):
        store = days[0]
        for day in days:
            inflow = torch.relu(self.gain * day + self.base)
            outflow = self.drain * store
            store = (store + inflow - outflow).clamp(-4, 4)
        return store * self.drain + self.base


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=130)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
settings = Settings(hunt_nans=not args.fixed)
torch.autograd.set_detect_anomaly(settings.hunt_nans)  # guilty
torch.set_num_threads(1)
torch.manual_seed(0)

flow = simulate(settings)
windows = flow.unfold(0, settings.window + 1, 1).permute(0, 2, 1)
model = Reservoirs(settings)
optimizer = torch.optim.Adam(model.parameters(), settings.lr)
for step in range(args.steps):
    chosen = windows[torch.randint(len(windows), (settings.batch,))].transpose(0, 1).contiguous()
    error = nn.functional.smooth_l1_loss(model(chosen[:-1]), chosen[-1])
    optimizer.zero_grad()
    error.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % 25 == 0:
        print(f"step {step + 1}: error {error.item():.4f}")
