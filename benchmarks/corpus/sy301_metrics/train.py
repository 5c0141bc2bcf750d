"""A segmentation whose metric, in another module, takes the prediction to the host in every step.

expects: SY301
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from metrics import Overlap, OverlapOnDevice
from torch import nn


def backbone():
    """Frozen: many layers of few channels, at a quarter of the size."""
    layers, channels = [nn.AvgPool2d(4)], 3
    for _ in range(26):
        layers += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        channels = 16
    return nn.Sequential(*layers, nn.Upsample(scale_factor=4)).requires_grad_(False)


def decoder(classes, channels):
    layers = [nn.Conv2d(16, channels, 3, padding=1), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels, classes, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    features = backbone().to(device, memory_format=torch.channels_last)
    model = decoder(8, 256 if device.type == "cuda" else 8).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images = torch.randn(12, 3, 128, 128, device=device)
    target = torch.randint(0, 8, (12, 128, 128), device=device)
    metric = OverlapOnDevice(8, device) if args.fixed else Overlap(8)
    for _ in range(args.steps):
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(features(images))
            loss = nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric.update(logits.detach(), target)


if __name__ == "__main__":
    main()
