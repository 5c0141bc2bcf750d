"""Batches large beside the kernels: dicts, objects of a class of its own, or worked on by the host first."""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 60


class Views:
    def __init__(self, samples):
        self.images = torch.stack([image for image, _ in samples])
        self.labels = torch.tensor([label for _, label in samples])


class Images(Dataset):
    def __len__(self):
        return 64 * BATCHES

    def __getitem__(self, i):
        return torch.full((3, 128, 128), float(i % 7)), i % 10


def as_dict(samples):
    views = Views(samples)
    return {"images": views.images, "labels": views.labels}


if __name__ == "__main__":
    mode = sys.argv[1]
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda")
    collate = Views if mode == "views" else as_dict
    loader = DataLoader(Images(), 64, num_workers=4, collate_fn=collate, pin_memory=mode != "views")
    model = nn.Sequential(nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    losses, pinned, there = [], [], []
    begun = time.perf_counter()
    for batch in loader:
        images, labels = (batch.images, batch.labels) if mode == "views" else (batch["images"], batch["labels"])
        if mode == "host":
            images = images * 2
        pinned.append(images.device.type == "cpu" and images.is_pinned())
        there.append(images.is_cuda)
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    print("LOSSES " + json.dumps([value.hex() for value in torch.stack(losses).tolist()]))
    print("TRUTH " + json.dumps({"pinned": sum(pinned), "there": sum(there), "steps": len(losses), "seconds": seconds}))
