"""Convolutions in bf16 and channels-last on images that lie on the device.

expects: none
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm_two(self.two(torch.relu(self.norm_one(self.one(x))))))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.benchmark = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Conv2d(3, 256, 7, 4, 3), *(Block(256) for _ in range(8)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
net = net.to(device, memory_format=torch.channels_last)
head = nn.Linear(256, 1000).to(device)
parameters = [*net.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, fused=device.type == "cuda")
images = torch.randn(128, 3, 224, 224, device=device).contiguous(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (128,), device=device)
for _ in range(args.steps):
    with torch.autocast(device.type, torch.bfloat16):
        loss = nn.functional.cross_entropy(head(net(images)), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
