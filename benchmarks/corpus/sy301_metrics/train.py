"""A segmentation whose metric, in another module, takes the prediction to the host in every step.

expects: SY301
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from metrics import Overlap, OverlapOnDevice
from torch import nn


def network(classes):
    layers, channels = [], 3
    for _ in range(10):
        layers += [nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        channels = 32
    return nn.Sequential(*layers, nn.Conv2d(channels, classes, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(8).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(4, 3, 160, 160, device=device)
    target = torch.randint(0, 8, (4, 160, 160), device=device)
    metric = OverlapOnDevice(8, device) if args.fixed else Overlap(8)
    for _ in range(args.steps):
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, target)
        metric.update(logits.detach(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
