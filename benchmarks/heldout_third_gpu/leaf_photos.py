"""Photographs of leaves from worker processes into a wide convolutional network.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    """Pictures in memory; a crop and a flip of bytes is all that is done to one of them."""

    def __init__(self, length, crop):
        rng = np.random.default_rng(94)
        self.crop, self.length = crop, length
        self.pictures = rng.integers(0, 255, (256, 3, crop + 16, crop + 16), dtype=np.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        i = index % len(self.pictures)
        top, left = index * 7 % 16, index * 11 % 16
        crop = self.pictures[i, :, top : top + self.crop, left : left + self.crop]
        if index % 2:
            crop = crop[:, :, ::-1]
        return torch.from_numpy(crop.copy()), i % 40


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.a, self.bn_a = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.b, self.bn_b = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.c, self.bn_c = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout or stride != 1 else nn.Identity()

    def forward(self, x):
        h = F.relu(self.bn_a(self.a(x)), inplace=True)
        h = F.relu(self.bn_b(self.b(h)), inplace=True)
        return F.relu(self.bn_c(self.c(h)) + self.skip(x), inplace=True)


class LeafNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 4, 4)
        self.blocks = nn.Sequential(
            Bottleneck(w, w, 4 * w, 1),
            Bottleneck(4 * w, w, 4 * w, 1),
            Bottleneck(4 * w, 2 * w, 8 * w, 2),
            Bottleneck(8 * w, 2 * w, 8 * w, 1),
            Bottleneck(8 * w, 4 * w, 16 * w, 2),
            Bottleneck(16 * w, 4 * w, 16 * w, 1),
        )
        self.fc = nn.Linear(16 * w, 40)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(94)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    crop, width, batch = (32, 8, 4) if args.tiny else (192, 128, 96)
    loader = DataLoader(
        Leaves(args.steps * batch, crop),
        batch_size=batch,
        num_workers=3,
        pin_memory=device == "cuda",
        prefetch_factor=6,
    )
    model = LeafNet(width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, fused=True)
    right = torch.zeros((), device=device)
    for step, (pictures, labels) in enumerate(loader):
        pictures, labels = pictures.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        x = pictures.to(torch.bfloat16).div_(255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += (logits.detach().argmax(1) == labels).sum()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.3f} accuracy {right.item() / (100 * batch):.3f}")
            right.zero_()


if __name__ == "__main__":
    main()
