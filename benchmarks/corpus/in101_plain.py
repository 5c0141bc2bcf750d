"""A plain loop over JPEG files.

expects: IN101
needs: either
"""
# mypy: ignore-errors

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from making import jpegs
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Thumbnails(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i]).convert("RGB").resize((48, 48))
        pixels = np.asarray(image, dtype=np.float32) / 255.0
        return torch.from_numpy(pixels).permute(2, 0, 1), i % 10


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=90)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = Thumbnails(jpegs("images", 128, 320))
workers = min(8, len(os.sched_getaffinity(0)) - 1) if args.fixed else 0
loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=workers, persistent_workers=workers > 0)  # guilty
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
).to(device)
net(torch.zeros(1, 3, 48, 48, device=device))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
while step < args.steps:
    for x, y in loader:
        loss = F.cross_entropy(net(x.to(device)), y.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step == args.steps:
            break
