"""The loop augments the batch itself, after the workers have handed it over.

expects: IN109
needs: either
"""
# mypy: ignore-errors

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def augment(images, source):
    images = images * source.uniform(0.8, 1.2, (len(images), 1, 1, 1)).astype(np.float32)
    for strength in (0.01, 0.02, 0.05):
        noise = source.normal(0, strength, images.shape).astype(np.float32)  # guilty
        images = np.fft.irfft2(np.fft.rfft2(images + noise) * 0.9, s=images.shape[-2:])  # guilty
    return images.astype(np.float32)


class Digits(Dataset):
    def __init__(self, count, augmented):
        self.images = np.random.default_rng(0).random((64, 1, 64, 64), dtype=np.float32)
        self.count, self.augmented = count, augmented

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        image = self.images[i % 64]
        if self.augmented:
            image = augment(image[None], np.random.default_rng(i))[0]
        return image, i % 10


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
workers = min(6, len(os.sched_getaffinity(0)) - 1)
loader = DataLoader(Digits(32 * args.steps, args.fixed), batch_size=32, num_workers=workers, persistent_workers=True)
net = nn.Sequential(
    nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 13 * 13, 10)
).to(device)
optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
source = np.random.default_rng(1)
for images, labels in loader:
    if not args.fixed:
        images = torch.from_numpy(augment(images.numpy(), source))  # guilty
    loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
