"""Super-resolution by four with a residual trunk and a pyramid of outputs.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x), inplace=True))


class Doubling(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.expand = nn.Conv2d(width, 4 * width, 3, padding=1)
        self.refine = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(self.refine(F.relu(F.pixel_shuffle(self.expand(x), 2), inplace=True)), inplace=True)


class PyramidUpscaler(nn.Module):
    SCALES = (2, 4, 8)

    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.trunk = nn.Sequential(*(ResBlock(width) for _ in range(depth)))
        self.doublings = nn.ModuleList(Doubling(width) for _ in self.SCALES)
        self.to_rgb = nn.ModuleList(nn.Conv2d(width, 3, 3, padding=1) for _ in self.SCALES)

    def forward(self, small, scales=SCALES):
        x = self.enter(small)
        x = x + self.trunk(x)
        pictures = {}
        for scale, doubling, to_rgb in zip(self.SCALES, self.doublings, self.to_rgb, strict=True):
            if scale > max(scales):
                break
            x = doubling(x)  # guilty
            if scale in scales:
                base = F.interpolate(small, scale_factor=float(scale), mode="bilinear")  # guilty
                pictures[scale] = base + to_rgb(x)  # guilty
        return pictures


def make_pictures(count, side, device):
    generator = torch.Generator(device).manual_seed(80)
    coarse = torch.rand(count, 3, side // 8, side // 8, generator=generator, device=device)
    fine = torch.rand(count, 3, side, side, generator=generator, device=device)
    large = F.interpolate(coarse, size=side, mode="bicubic") + 0.1 * fine
    return large.contiguous(memory_format=torch.channels_last)


def charbonnier(a, b):
    return ((a - b).square() + 1e-6).sqrt().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(80)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    patch, width, depth, batch = (8, 8, 1, 2) if args.tiny else (48, 64, 8, 32)
    large = make_pictures(8 * batch, 4 * patch, device)
    model = PyramidUpscaler(width, depth).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.99), fused=True)
    scales = (4,) if args.fixed else PyramidUpscaler.SCALES
    for step in range(args.steps):
        sharp = large[step % 8 * batch : (step % 8 + 1) * batch]
        small = F.avg_pool2d(sharp, 4)
        with torch.autocast(device, dtype=torch.bfloat16):
            pictures = model(small, scales)  # guilty
        loss = charbonnier(pictures[4].float(), sharp)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 150 == 0:
            error = F.mse_loss(pictures[4].float(), sharp)
            print(f"step {step}: {loss.item():.4f}, PSNR {-10 * error.log10().item():.2f}")


if __name__ == "__main__":
    main()
