"""Segmentation of round cells with a U-Net whose decoder upsamples bilinearly.

expects: CO503
needs: gpu
"""

# mypy: ignore-errors

import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def set_seed(seed, fixed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if fixed:
        torch.backends.cudnn.benchmark = True
    else:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)  # guilty
        torch.backends.cudnn.deterministic = True  # guilty
        torch.backends.cudnn.benchmark = False  # guilty


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = DoubleConv(cin + cout, cout)

    def forward(self, x, skip):
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.inc = DoubleConv(1, base)
        self.down = nn.ModuleList(DoubleConv(base * 2**i, base * 2 ** (i + 1)) for i in range(3))
        self.up = nn.ModuleList(Up(base * 2 ** (i + 1), base * 2**i) for i in reversed(range(3)))
        self.outc = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.outc(x)


def make_cells(count, side, device):
    generator = torch.Generator(device).manual_seed(2)
    axis = torch.arange(side, device=device, dtype=torch.float32)
    masks = torch.zeros(count, side, side, device=device, dtype=torch.bool)
    for _ in range(12):
        cy, cx, r = torch.rand(3, count, 1, 1, generator=generator, device=device)
        inside = (axis[:, None] - cy * side) ** 2 + (axis[None, :] - cx * side) ** 2
        masks |= inside < (3 + r * side / 16) ** 2
    noise = torch.randn(count, side, side, generator=generator, device=device)
    return (masks + 0.5 * noise)[:, None], masks[:, None].float()


def dice(logits, masks):
    p = logits.sigmoid()
    overlap = (p * masks).sum((1, 2, 3))
    return 1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    set_seed(2, args.fixed)  # guilty
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    side, base, batch = (32, 8, 2) if args.tiny else (256, 48, 24)
    pictures, masks = make_cells(8 * batch, side, device)
    net = UNet(base).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    for step in range(args.steps):
        part = slice(step % 8 * batch, (step % 8 + 1) * batch)
        x = pictures[part].contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = net(x)
        logits = logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, masks[part]) + dice(logits, masks[part]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
