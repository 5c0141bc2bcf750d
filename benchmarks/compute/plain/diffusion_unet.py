"""A denoising diffusion model on random images of 64x64, in float32: a U-Net with attention written out."""

# mypy: ignore-errors

import argparse
import json
import math
import statistics
import time
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F


class Pace:
    """Times the last half of the steps in five chunks, and waits for the device only where a chunk ends."""

    def __init__(self, steps, device):
        self.chunk = max(1, steps // 10)
        self.first = steps - 5 * self.chunk
        self.device = device
        self.marks = []

    def at(self, step):
        """Before every step, and once after the last."""
        if step >= self.first and (step - self.first) % self.chunk == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def report(self, batch_size, last_loss):
        chunks = [end - start for start, end in pairwise(self.marks)]
        step_ms = 1e3 * statistics.median(chunks) / self.chunk
        figures = {"samples_per_s": 1e3 * batch_size / step_ms, "step_ms": step_ms, "last_loss": last_loss}
        print(json.dumps(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a small model on little data, for a processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error(f"--steps must be at least 5, got {args.steps}")
    return args


def timestep_embedding(t, dim):
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb_dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb_dim, cout)
        self.norm2 = nn.GroupNorm(32, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(emb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.skip(x)


class AttentionBlock(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w)
        q, k, v = qkv.transpose(-2, -1).unbind(1)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        weights = torch.softmax(scores, dim=-1)
        out = torch.matmul(weights, v)
        out = out.transpose(-2, -1).reshape(b, c, h, w)
        return x + self.proj(out)


class Stage(nn.Module):
    """A residual block, with attention behind it where the picture is small."""

    def __init__(self, cin, cout, emb_dim, with_attention):
        super().__init__()
        self.block = ResBlock(cin, cout, emb_dim)
        self.attention = AttentionBlock(cout) if with_attention else nn.Identity()

    def forward(self, x, emb):
        return self.attention(self.block(x, emb))


class UNet(nn.Module):
    def __init__(self, base=128, multiples=(1, 2, 2, 2), blocks=2, attention_levels=(2,)):
        super().__init__()
        emb_dim = 4 * base
        self.base = base
        self.time = nn.Sequential(nn.Linear(base, emb_dim), nn.SiLU(), nn.Linear(emb_dim, emb_dim))
        self.stem = nn.Conv2d(3, base, 3, padding=1)
        self.down, self.shrink, widths, width = nn.ModuleList(), nn.ModuleList(), [base], base
        for level, multiple in enumerate(multiples):
            stages = nn.ModuleList()
            for _ in range(blocks):
                stages.append(Stage(width, base * multiple, emb_dim, level in attention_levels))
                width = base * multiple
                widths.append(width)
            self.down.append(stages)
            if level < len(multiples) - 1:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                widths.append(width)
        self.middle = nn.ModuleList([Stage(width, width, emb_dim, True), Stage(width, width, emb_dim, False)])
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, multiple in reversed(list(enumerate(multiples))):
            stages = nn.ModuleList()
            for _ in range(blocks + 1):
                stages.append(Stage(width + widths.pop(), base * multiple, emb_dim, level in attention_levels))
                width = base * multiple
            self.up.append(stages)
            if level > 0:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, width)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.base))
        h = self.stem(x)
        skips = [h]
        for level, stages in enumerate(self.down):
            for stage in stages:
                h = stage(h, emb)
                skips.append(h)
            if level < len(self.shrink):
                h = self.shrink[level](h)
                skips.append(h)
        for stage in self.middle:
            h = stage(h, emb)
        for level, stages in enumerate(self.up):
            for stage in stages:
                h = stage(torch.cat([h, skips.pop()], dim=1), emb)
            if level < len(self.grow):
                h = self.grow[level](F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.norm(h)))


def make_model(tiny):
    return UNet(base=32, multiples=(1, 2), blocks=1, attention_levels=(1,)) if tiny else UNet()


def make_data(tiny, device):
    """The size of a batch, and eight batches of images."""
    batch_size, side = (4, 16) if tiny else (64, 64)
    return batch_size, torch.rand(8 * batch_size, 3, side, side, device=device) * 2 - 1


class Diffusion:
    """The linear noise schedule."""

    def __init__(self, device, timesteps=1000):
        betas = torch.linspace(1e-4, 0.02, timesteps, device=device)
        kept = torch.cumprod(1.0 - betas, dim=0)
        self.timesteps = timesteps
        self.signal, self.noise = kept.sqrt(), (1.0 - kept).sqrt()

    def add_noise(self, x, t, noise):
        return self.signal[t][:, None, None, None] * x + self.noise[t][:, None, None, None] * noise


def main():
    args = parse()
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    batch_size, images = make_data(args.tiny, device)
    diffusion = Diffusion(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)

    model.train()
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x = images[start : start + batch_size]
        t = torch.randint(diffusion.timesteps, (batch_size,), device=device)
        noise = torch.randn_like(x)
        predicted = model(diffusion.add_noise(x, t, noise), t)
        loss = F.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
