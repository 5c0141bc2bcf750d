"""A recurrent network with an orthogonal hidden-to-hidden matrix, which learns to add two marked numbers of a sequence.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal


def adding_batch(batch, length, generator):
    """The adding problem: the answer is the sum of the two values whose marker is set."""
    values = torch.rand(batch, length, generator=generator)
    markers = torch.zeros(batch, length)
    first = torch.randint(0, length // 2, (batch, 1), generator=generator)
    second = torch.randint(length // 2, length, (batch, 1), generator=generator)
    markers.scatter_(1, first, 1.0)
    markers.scatter_(1, second, 1.0)
    return torch.stack([values, markers], 2), (values * markers).sum(1)


class ModReLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width).uniform_(-0.01, 0.01))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class OrthogonalRNN(nn.Module):
    def __init__(self, width, fixed):
        super().__init__()
        self.width, self.fixed = width, fixed
        self.inp = nn.Linear(2, width)
        self.recurrent = orthogonal(nn.Linear(width, width, bias=False), orthogonal_map="cayley")
        self.act = ModReLU(width)
        self.out = nn.Linear(width, 1)

    def unroll(self, x):
        state = x.new_zeros(len(x), self.width)
        for drive in self.inp(x).unbind(1):
            state = self.act(drive + self.recurrent(state))  # guilty
        return state

    def forward(self, x):
        with parametrize.cached() if self.fixed else contextlib.nullcontext():
            state = self.unroll(x)
        return self.out(state).squeeze(1)


def parameter_groups(model, lr):
    """The orthogonal matrix moves more slowly than the rest, as is usual for it."""
    slow = [p for name, p in model.named_parameters() if "parametrizations" in name]
    fast = [p for name, p in model.named_parameters() if "parametrizations" not in name]
    return [{"params": fast, "lr": lr}, {"params": slow, "lr": lr / 10}]


@torch.no_grad()
def validate(model, length, seed):
    model.eval()
    x, y = adding_batch(256, length, torch.Generator().manual_seed(seed))
    error = F.mse_loss(model(x), y).item()
    model.train()
    return error


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=32)
    cli.add_argument("--width", type=int, default=64)
    args = cli.parse_args()
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = OrthogonalRNN(args.width, args.fixed)
    optimizer = torch.optim.RMSprop(parameter_groups(model, 1e-3), alpha=0.9)
    for step in range(1, args.steps + 1):
        x, y = adding_batch(50, args.length, generator)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            error = validate(model, args.length, 99)
            print(f"step {step} loss {loss.item():.4f} validation {error:.4f}")


if __name__ == "__main__":
    main()
