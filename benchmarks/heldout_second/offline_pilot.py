"""Learns to steer from logged flights: behaviour cloning on stored transitions.

expects: IN106
needs: cpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Flights(Dataset):
    def __init__(self, n=60_000, sensors=48, controls=6):
        r = np.random.RandomState(4)
        self.obs = r.randn(n, sensors).astype("float32")
        self.act = np.tanh(self.obs[:, :controls] * 1.5 + 0.1 * r.randn(n, controls)).astype("float32")

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return self.obs[i], self.act[i]


def forever(loader):
    while True:
        yield from loader


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=85)
    p.add_argument("--fixed", action="store_true")
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    loader = DataLoader(Flights(), batch_size=256, shuffle=True, num_workers=1)
    stream = forever(loader) if a.fixed else None
    pilot = nn.Sequential(nn.Linear(48, 640), nn.GELU(), nn.Linear(640, 640), nn.GELU(), nn.Linear(640, 6), nn.Tanh())
    opt = torch.optim.Adam(pilot.parameters(), lr=3e-4)

    step, running = 0, None
    while step < a.steps:
        if stream is None:
            obs, act = next(iter(loader))  # guilty
        else:
            obs, act = next(stream)
        loss = (pilot(obs) - act).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        step += 1
        if step % 40 == 0:
            print(f"[{step}/{a.steps}] imitation error {running:.4f}")


if __name__ == "__main__":
    main()
