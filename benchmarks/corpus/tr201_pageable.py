"""Batches copied from ordinary memory, one by one and blocking.

expects: TR201
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, count):
        self.clips = torch.randn(32, 3, 16, 56, 56)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.clips[i % 32], i % 20


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pin = args.fixed and device.type == "cuda"
loader = DataLoader(Clips(32 * args.steps), batch_size=32, num_workers=6, pin_memory=pin)
wide = 64 if device.type == "cuda" else 4
layers = [nn.Conv3d(3, wide, 3, 1, 1), nn.ReLU(), nn.Conv3d(wide, wide, 3, 1, 1), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(8 * wide, 20))
net.to(device, memory_format=torch.channels_last_3d)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for clip, label in loader:
    clip = clip.to(device, non_blocking=args.fixed)  # guilty
    label = label.to(device, non_blocking=args.fixed)
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        loss = nn.functional.cross_entropy(net(clip), label)
    loss.backward()
    optimizer.step()
