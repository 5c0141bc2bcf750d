"""Hard examples picked with `nonzero` in a generator-driven loop.

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
        yield torch.randn(2048, 512, device=device, generator=generator)


def hardest(errors, fixed):
    if fixed:
        return errors.topk(256).values.mean()
    picked = torch.nonzero(errors > errors.mean()).squeeze(1)  # guilty
    return errors[picked].mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = [layer for _ in range(14) for layer in (nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for x in batches(args.steps, device):
        errors = (model(x) - x).square().mean(1)
        loss = hardest(errors, args.fixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
