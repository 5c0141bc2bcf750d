"""Leaves from JPEG files with a large attention net: a dozen workers decode, and the device never waits for them.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def press_leaves(folder, n, size):
    rng = np.random.default_rng(0)
    for i in range(n):
        small = rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((size, size), Image.BICUBIC).save(folder / f"{i:04d}.jpg", quality=80)


class Leaves(Dataset):
    def __init__(self, folder, length, crop):
        self.paths, self.length, self.crop = sorted(folder.glob("*.jpg")), length, crop

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        path = self.paths[i % len(self.paths)]
        img = np.asarray(Image.open(path).convert("RGB"))
        r, c = torch.randint(0, img.shape[0] - self.crop + 1, (2,)).tolist()
        tile = np.ascontiguousarray(img[r : r + self.crop, c : c + self.crop].transpose(2, 0, 1))
        return torch.from_numpy(tile), i % 64


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.n2(x))


class LeafNet(nn.Module):
    def __init__(self, crop, dim, depth, heads):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 16, 16)
        self.pos = nn.Parameter(torch.randn((crop // 16) ** 2, dim) * 0.02)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, 64)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.layers(x).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    crop, dim, depth, heads, batch = (192, 1024, 16, 16, 64) if cuda else (32, 32, 1, 2, 2)
    with tempfile.TemporaryDirectory() as tmp:
        press_leaves(Path(tmp), 200 if cuda else 4, crop + 16)
        loader = DataLoader(
            Leaves(Path(tmp), batch * args.steps, crop),
            batch,
            shuffle=True,
            num_workers=min(12, os.cpu_count() or 1) if cuda else 0,
            pin_memory=cuda,
        )
        model = LeafNet(crop, dim, depth, heads).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=cuda)
        for step, (x, y) in enumerate(loader, 1):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            x = x.float().div_(127.5).sub_(1)
            with torch.autocast(device.type, torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
