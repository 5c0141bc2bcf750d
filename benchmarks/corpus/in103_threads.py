"""Many workers, each of which again uses all processors.

expects: IN103
needs: either
"""
# mypy: ignore-errors

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CPUS = len(os.sched_getaffinity(0))


def all_threads(worker_id):
    torch.set_num_threads(CPUS)


class Spectra(Dataset):
    """Noisy signals, turned into spectra by a dense transform."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.basis = torch.randn(512, 512, generator=generator)

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        signal = torch.randn(24, 512, generator=torch.Generator().manual_seed(i))
        for _ in range(3):
            signal = torch.tanh(signal @ self.basis / 22)
        return signal[0], signal.mean()


def build(fixed):
    if fixed:
        return DataLoader(Spectra(), 16, num_workers=max(1, CPUS - 1))
    return DataLoader(Spectra(), 16, num_workers=CPUS * 3, worker_init_fn=all_threads)  # guilty


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for step, (signal, target) in enumerate(build(args.fixed), 1):
        loss = (net(signal.to(device)).squeeze(1) - target.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == args.steps:
            break
