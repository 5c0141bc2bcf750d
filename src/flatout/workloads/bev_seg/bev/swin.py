"""A hierarchical transformer with shifted windows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DropPath(nn.Module):
    """Leaves out a residual branch for some samples of the batch."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1.0 - self.rate
        mask = torch.rand((x.shape[0], *[1] * (x.dim() - 1)), dtype=x.dtype, device=x.device) < keep
        return x * mask / keep


def split_windows(x: Tensor, window: int) -> Tensor:
    """[B, H, W, C] to [B * windows, window², C]."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, channels)


def join_windows(x: Tensor, window: int, height: int, width: int) -> Tensor:
    """Back to [B, H, W, C]."""
    x = x.view(-1, height // window, width // window, window, window, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.shape[-1])


def relative_positions(window: int) -> Tensor:
    """For each pair of tokens in a window, the row of the bias table."""
    axis = torch.arange(window)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
    offset = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + window - 1
    return offset[..., 0] * (2 * window - 1) + offset[..., 1]


def shift_mask(height: int, width: int, window: int, shift: int, device: torch.device) -> Tensor:
    """-100 between tokens that lie in one window only because the image was rolled."""
    region = torch.zeros(1, height, width, 1, device=device)
    spans = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for row, rows in enumerate(spans):
        for column, columns in enumerate(spans):
            region[:, rows, columns] = 3 * row + column
    tokens = split_windows(region, window).squeeze(-1)
    differ = tokens[:, None, :] != tokens[:, :, None]
    return differ.float() * -100.0


class WindowAttention(nn.Module):
    """Self-attention inside windows, with a learnt bias per relative position."""

    relative: Tensor

    def __init__(self, dim: int, window: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        self.register_buffer("relative", relative_positions(window), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        windows, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(windows, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0] * self.scale, qkv[1], qkv[2]
        attention = query @ key.transpose(-2, -1)
        bias = self.bias_table[self.relative.view(-1)].view(tokens, tokens, self.heads).permute(2, 0, 1)
        attention = attention + bias.unsqueeze(0)
        if mask is not None:
            count = mask.shape[0]
            attention = attention.view(windows // count, count, self.heads, tokens, tokens) + mask[None, :, None]
            attention = attention.view(windows, self.heads, tokens, tokens)
        attention = attention.softmax(dim=-1)
        mixed = (attention.to(value.dtype) @ value).transpose(1, 2).reshape(windows, tokens, dim)
        projected: Tensor = self.proj(mixed)
        return projected


class SwinBlock(nn.Module):
    """Windowed attention, shifted in every second block, and an MLP."""

    def __init__(self, dim: int, heads: int, window: int, shift: int, drop_path: float) -> None:
        super().__init__()
        self.window = window
        self.shift = shift
        self.norm1 = nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, window, heads)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        shortcut = x
        x = F.pad(self.norm1(x), (0, 0, 0, -width % self.window, 0, -height % self.window))
        tall, wide = x.shape[1:3]
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        x = self.attention(split_windows(x, self.window), mask if self.shift else None)
        x = join_windows(x, self.window, tall, wide)
        if self.shift:
            x = torch.roll(x, (self.shift, self.shift), dims=(1, 2))
        x = shortcut + self.drop_path(x[:, :height, :width])
        out: Tensor = x + self.drop_path(self.mlp(self.norm2(x)))
        return out


class PatchMerging(nn.Module):
    """Halves the resolution and doubles the channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1)
        merged: Tensor = self.reduction(self.norm(x))
        return merged


class Stage(nn.Module):
    """Blocks of one resolution."""

    def __init__(self, dim: int, heads: int, window: int, drop_paths: list[float]) -> None:
        super().__init__()
        self.window = window
        self.blocks = nn.ModuleList(
            SwinBlock(dim, heads, window, index % 2 * (window // 2), rate) for index, rate in enumerate(drop_paths)
        )

    def forward(self, x: Tensor) -> Tensor:
        tall, wide = (side + -side % self.window for side in x.shape[1:3])
        mask = shift_mask(tall, wide, self.window, self.window // 2, x.device)
        for block in self.blocks:
            x = block(x, mask)
        return x


class Swin(nn.Module):
    """The backbone: features at 1/16 and 1/32 of the image."""

    def __init__(self, dim: int, depths: list[int], heads: list[int], window: int, drop_path: float) -> None:
        super().__init__()
        rates = torch.linspace(0, drop_path, sum(depths)).tolist()
        self.embed = nn.Conv2d(3, dim, 4, stride=4)
        self.embed_norm = nn.LayerNorm(dim)
        self.stages = nn.ModuleList()
        self.merges = nn.ModuleList()
        self.norms = nn.ModuleList([nn.LayerNorm(dim * 4), nn.LayerNorm(dim * 8)])
        for level, depth in enumerate(depths):
            self.stages.append(Stage(dim * 2**level, heads[level], window, [rates.pop(0) for _ in range(depth)]))
            if level < len(depths) - 1:
                self.merges.append(PatchMerging(dim * 2**level))
        self.apply(_init)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed_norm(self.embed(image).permute(0, 2, 3, 1))
        features = []
        for level, stage in enumerate(self.stages):
            x = stage(x)
            if level >= 2:
                features.append(self.norms[level - 2](x).permute(0, 3, 1, 2).contiguous())
            if level < len(self.merges):
                x = self.merges[level](x)
        return features[0], features[1]


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
