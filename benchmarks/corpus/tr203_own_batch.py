"""`pin_memory=True` for a batch type that the loader cannot pin.

expects: TR203
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Views:
    """The cameras and images of a batch."""

    def __init__(self, samples):
        self.images = torch.stack([image for image, _ in samples])
        self.cameras = torch.stack([camera for _, camera in samples])

    def to(self, device):
        self.images = self.images.to(device, non_blocking=True)  # guilty
        self.cameras = self.cameras.to(device, non_blocking=True)  # guilty
        return self


class PinnedViews(Views):
    def pin_memory(self):
        self.images, self.cameras = self.images.pin_memory(), self.cameras.pin_memory()
        return self


class Cameras(Dataset):
    def __init__(self, count):
        self.images = torch.randn(12, 3, 270, 480)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.images[i % 12], torch.eye(4)


def main(args):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(  # guilty
        Cameras(8 * args.steps),
        batch_size=8,
        num_workers=6,
        collate_fn=PinnedViews if args.fixed else Views,
        pin_memory=device.type == "cuda",
    )
    wide = 256 if device.type == "cuda" else 8
    layers = [nn.Conv2d(3, 64, 7, 2), nn.ReLU(), nn.Conv2d(64, wide, 3), nn.ReLU(), nn.Conv2d(wide, wide, 3), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * wide, 16))
    net.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    for views in loader:
        views = views.to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            loss = (net(views.images).view(-1, 4, 4) - views.cameras).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
