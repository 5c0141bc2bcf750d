"""The hardest examples of the last step are picked with `nonzero`, in a generator-driven loop.

expects: SY302
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def batches(count, device):
    generator = torch.Generator(device=device).manual_seed(0)
    for _ in range(count):
        yield torch.randn(8192, 64, device=device, generator=generator)


def hardest(scores, fixed):
    if fixed:
        return scores.topk(len(scores) // 2).indices
    return torch.nonzero(scores > scores.median()).squeeze(1)  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_dtype(torch.bfloat16)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = 8192 if device.type == "cuda" else 256
    with torch.device(device):
        layers = [layer for _ in range(24) for layer in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ELU())]
        teacher = nn.Sequential(*layers).requires_grad_(False)
        student = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        last = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))
        model = nn.Sequential(student, last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for x in batches(args.steps, device):
        x = x[hardest(x.square().sum(1), args.fixed)]
        loss = (model(x) - teacher(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
