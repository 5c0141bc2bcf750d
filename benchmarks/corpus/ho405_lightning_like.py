"""A small trainer whose debug switch turns anomaly detection on for every step.

expects: HO405
needs: either
"""
# mypy: ignore-errors

import argparse
from contextlib import nullcontext

import torch
from torch import nn


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(48, 48) for _ in range(30))
        self.gates = nn.ParameterList(nn.Parameter(torch.ones(48)) for _ in range(30))

    def training_step(self, x):
        y = x
        for block, gate in zip(self.blocks, self.gates, strict=True):
            y = y + torch.tanh(block(y)) * gate
        return nn.functional.l1_loss(y, x)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, max_steps, debug):
        self.max_steps, self.debug = max_steps, debug

    def guard(self):
        return torch.autograd.detect_anomaly(check_nan=True) if self.debug else nullcontext()  # guilty

    def fit(self, module, batches):
        optimizer = module.configure_optimizers()
        for _ in range(self.max_steps):
            with self.guard():  # guilty
                loss = module.training_step(next(batches))
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()


def endless(device):
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(24, 48, generator=generator).to(device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    Trainer(args.steps, debug=not args.fixed).fit(Module().to(device), endless(device))
