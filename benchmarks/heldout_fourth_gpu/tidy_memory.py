"""Image restoration with patches of several sizes, and a helper that keeps the device's memory low.

expects: HO404
needs: gpu
"""

# mypy: ignore-errors
import argparse
import functools
import gc
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


def low_memory(enabled):
    """Gives memory back after each call of what it decorates."""

    def decorate(fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            try:
                return fn(*args, **kwargs)
            finally:
                if enabled:
                    gc.collect()  # guilty
                    torch.cuda.empty_cache()  # guilty

        return wrapped

    return decorate


class ChannelAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(dim, dim // 8, 1), nn.ReLU(), nn.Conv2d(dim // 8, dim, 1))

    def forward(self, x):
        return x * torch.sigmoid(self.squeeze(x.mean((2, 3), keepdim=True)))


class Group(nn.Module):
    def __init__(self, dim, n):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(dim, dim, 3, 1, 1), nn.ReLU(), nn.Conv2d(dim, dim, 3, 1, 1), ChannelAttention(dim))
            for _ in range(n)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class Restorer(nn.Module):
    def __init__(self, dim, groups):
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, dim, 3, 1, 1), nn.Conv2d(dim, 3, 3, 1, 1)
        self.groups = nn.ModuleList(Group(dim, 4) for _ in range(groups))

    def forward(self, x):
        h = self.head(x)
        for group in self.groups:
            h = h + group(h)
        return x + self.tail(h)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--device", default="cuda")
    args = cli.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    dim, groups, sizes, batch = (64, 4, (96, 128, 160), 24) if cuda else (8, 1, (8, 12), 2)
    model = Restorer(dim, groups).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=cuda)
    pictures = torch.rand(64, 3, 256, 256, device=device)
    patch_sizes = itertools.cycle(sizes)

    @low_memory(enabled=not args.fixed)
    def train_step():
        size = next(patch_sizes)
        r, c = torch.randint(0, 256 - size, (2,)).tolist()
        idx = torch.randint(0, len(pictures), (batch,), device=device)
        clean = pictures[idx, :, r : r + size, c : c + size].to(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16):
            out = model(clean + 0.1 * torch.randn_like(clean))
        loss = F.l1_loss(out.float(), clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step in range(1, args.steps + 1):
        loss = train_step()  # guilty
        if step % 50 == 0:
            print(f"step {step} l1 {loss.item():.4f}")


if __name__ == "__main__":
    main()
