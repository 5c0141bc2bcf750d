"""Windowed attention over image patches with a relative position bias, in the style of hierarchical transformers.

expects: HO408
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class WindowAttention(nn.Module):
    def __init__(self, dim, window, heads, cache_index=False):
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        self.cached = self.relative_index() if cache_index else None

    def relative_index(self):
        """For each pair of positions in a window, the row of the bias table."""
        w = self.window
        coords = [(r, c) for r in range(w) for c in range(w)]
        rows = []
        for r1, c1 in coords:
            rows.append([(r1 - r2 + w - 1) * (2 * w - 1) + (c1 - c2 + w - 1) for r2, c2 in coords])  # guilty
        return torch.tensor(rows)  # guilty

    def shift_mask(self, size, shift):
        """Positions that a cyclic shift brought together must not see each other."""
        region = torch.zeros(size, size)
        count = 0
        cuts = (slice(0, -self.window), slice(-self.window, -shift), slice(-shift, None))
        for h in cuts:
            for v in cuts:
                region[h, v] = count
                count += 1
        parts = self.partition(region.view(1, size, size, 1)).squeeze(-1)
        return torch.where(parts.unsqueeze(1) == parts.unsqueeze(2), 0.0, -100.0)

    def partition(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, c)

    def forward(self, x, shift, mask):
        b, h, w, c = x.shape
        parts = self.partition(torch.roll(x, (-shift, -shift), (1, 2)) if shift else x)
        q, k, v = self.qkv(parts).view(len(parts), -1, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        index = self.cached if self.cached is not None else self.relative_index()  # guilty
        bias = self.bias_table[index.view(-1)].view(*index.shape, -1).permute(2, 0, 1)
        if mask is not None:
            bias = bias + mask.repeat(b, 1, 1).unsqueeze(1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(len(parts), -1, -1, -1))
        out = self.proj(out.transpose(1, 2).reshape(len(parts), -1, c))
        n = h // self.window
        out = out.view(b, n, n, self.window, self.window, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(out, (shift, shift), (1, 2)) if shift else out


class Stage(nn.Module):
    def __init__(self, dim, size, window, cache_index):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, 4, cache_index)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.register_buffer("mask", self.attn.shift_mask(size, window // 2), persistent=False)

    def forward(self, x, shifted):
        shift = self.attn.window // 2 if shifted else 0
        x = x + self.attn(self.norm1(x), shift, self.mask if shifted else None)
        return x + self.mlp(self.norm2(x))


class WindowNet(nn.Module):
    def __init__(self, classes, cache_index):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 2, 2)
        self.stages = nn.ModuleList(Stage(32, 32, 16, cache_index) for _ in range(2))
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        for k, stage in enumerate(self.stages):
            x = stage(x, k % 2 == 1)
        return self.head(x.mean((1, 2)))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=125)
    p.add_argument("--fixed", action="store_true")
    args = p.parse_args()
    torch.manual_seed(0)
    y = torch.randint(0, 6, (240,))
    x = torch.randn(240, 3, 64, 64) + 0.3 * F.one_hot(y % 3, 3).view(-1, 3, 1, 1)
    loader = DataLoader(TensorDataset(x, y), 2, shuffle=True)
    model = WindowNet(6, args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    step = 0
    while step < args.steps:
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step >= args.steps:
                break
