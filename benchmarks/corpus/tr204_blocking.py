"""The loader pins its batches; the trainer copies them with a call that waits.

expects: TR204
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, count):
        self.frames, self.count = torch.randn(24, 3, 224, 224), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.frames[i % 24], i % 7


def train_epoch(net, loader, optimizer, device, fixed):
    for frames, label in loader:
        frames = frames.to(device, non_blocking=fixed)  # guilty
        label = label.to(device, non_blocking=fixed)  # guilty
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(net(frames), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width, depth = (192, 10) if device.type == "cuda" else (8, 1)
    # Small layers first: the host must be ahead of the device to launch them in time.
    layers = [nn.Conv2d(3, 32, 7, 4, 3), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(32, 32, 3, 1, 1), nn.GroupNorm(4, 32), nn.SiLU()]
    layers += [nn.Conv2d(32, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 7))
    net.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    pin = device.type == "cuda"
    loader = DataLoader(Frames(32 * args.steps), 32, num_workers=8, pin_memory=pin, persistent_workers=True)
    train_epoch(net, loader, optimizer, device, args.fixed)
