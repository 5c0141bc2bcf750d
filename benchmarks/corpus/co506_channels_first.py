"""Convolutions under autocast whose images and weights have their channels first.

expects: CO506
needs: gpu
line: no
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    side, batch = (224, 128) if on_gpu else (64, 4)
    stem = nn.Sequential(nn.Conv2d(3, 256, 7, 4, 3, bias=False), nn.BatchNorm2d(256), nn.ReLU(inplace=True))
    blocks = [Bottleneck(256, 128) for _ in range(8)]
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    if args.fixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=on_gpu)
    for _ in range(args.steps):
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
