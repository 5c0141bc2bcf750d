"""Frames of 8 bits are normalised when they are read in, and go to the device as floats.

expects: TR205
needs: gpu
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def read_in(count, frames, side):
    """Batches of clips as a camera gives them: smooth pictures, a byte a value."""
    source = np.random.default_rng(0)
    for _ in range(count):
        coarse = source.integers(0, 256, (frames, 3, 16, 16)).astype(np.float32)
        fine = nn.functional.interpolate(torch.from_numpy(coarse), size=(side, side), mode="bilinear")
        yield fine.round().to(torch.uint8)


def normalised(frames):
    mean = torch.tensor(MEAN, device=frames.device).view(3, 1, 1)
    std = torch.tensor(STD, device=frames.device).view(3, 1, 1)
    return (frames.float() / 255 - mean) / std


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    batches = list(read_in(6, 256 if on_gpu else 8, 224))
    if not args.fixed:
        batches = [normalised(frames) for frames in batches]
    if on_gpu:
        batches = [frames.pin_memory() for frames in batches]
    mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
    std = torch.tensor(STD, device=device).view(3, 1, 1)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 16, 16), nn.ReLU(), nn.Conv2d(64, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    head = nn.Linear(64, 8).to(device)
    net.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.01, fused=on_gpu)
    labels = torch.randint(0, 8, (len(batches[0]),), device=device)
    for step in range(args.steps):
        frames = batches[step % len(batches)].to(device, non_blocking=True)  # guilty
        if args.fixed:
            frames = (frames.float() / 255 - mean) / std
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            loss = nn.functional.cross_entropy(head(net(frames)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
