"""Attention inside windows of a frame, and over time at each pixel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deblur.config import Chunks


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(q kᵀ / √d) v over the last two axes."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    mixed: Tensor = scores.softmax(dim=-1) @ value
    return mixed


class WindowAttention(nn.Module):
    """Self-attention inside square windows of each frame; every other block shifts the windows by half."""

    def __init__(self, dim: int, head_dim: int, window: int, shifted: bool) -> None:
        super().__init__()
        self.heads, self.window = dim // head_dim, window
        self.shift = window // 2 if shifted else 0
        self.norm = nn.LayerNorm(dim)
        self.position = nn.Parameter(torch.zeros(window * window, dim))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        frames, height, width, dim = x.shape
        size = self.window
        x = self.norm(x)
        down, right = -height % size, -width % size
        if down or right:
            x = F.pad(x, (0, 0, 0, right, 0, down))
        if self.shift:
            x = x.roll((-self.shift, -self.shift), dims=(1, 2))
        rows, columns = x.shape[1] // size, x.shape[2] // size
        windows = x.view(frames, rows, size, columns, size, dim).transpose(2, 3).reshape(-1, size * size, dim)
        qkv = self.qkv(windows + self.position).view(len(windows), size * size, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = attend(query, key, value).transpose(1, 2).reshape(len(windows), size * size, dim)
        mixed = self.project(mixed).view(frames, rows, columns, size, size, dim)
        x = mixed.transpose(2, 3).reshape(frames, rows * size, columns * size, dim)
        if self.shift:
            x = x.roll((self.shift, self.shift), dims=(1, 2))
        return x[:, :height, :width]


class FeedForward(nn.Module):
    """The block's pixelwise part."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.widen = nn.Linear(dim, 2 * dim)
        self.narrow = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        narrowed: Tensor = self.narrow(F.gelu(self.widen(self.norm(x))))
        return narrowed


class Block(nn.Module):
    """Windowed attention and feed-forward with residuals, recomputed in the backward pass where asked."""

    def __init__(self, dim: int, head_dim: int, window: int, shifted: bool, checkpoints: tuple[bool, bool]) -> None:
        super().__init__()
        self.attention = WindowAttention(dim, head_dim, window, shifted)
        self.feed_forward = FeedForward(dim)
        self.checkpoint_attention, self.checkpoint_feed_forward = checkpoints

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._run(self.attention, x, self.checkpoint_attention)
        return x + self._run(self.feed_forward, x, self.checkpoint_feed_forward)

    def _run(self, part: nn.Module, x: Tensor, recompute: bool) -> Tensor:
        out: Tensor = checkpoint(part, x, use_reentrant=False) if recompute and self.training else part(x)
        return out


class TemporalAttention(nn.Module):
    """At each pixel the frames of one stream attend to the frames of another, chunk by chunk of the image."""

    def __init__(self, dim: int, chunks: Chunks) -> None:
        super().__init__()
        self.heads, self.chunks = chunks.HEADS, chunks
        self.norm_query, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key_value = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Both (clips, frames, height, width, dim)."""
        out = torch.empty_like(x)
        for rows, columns in self._pieces(x):
            out[:, :, rows, columns] = self._attend_piece(x[:, :, rows, columns], context[:, :, rows, columns])
        return x + out

    def _attend_piece(self, x: Tensor, context: Tensor) -> Tensor:
        clips, frames, height, width, dim = x.shape
        tokens = x.permute(0, 2, 3, 1, 4).reshape(-1, frames, dim)
        others = context.permute(0, 2, 3, 1, 4).reshape(-1, frames, dim)
        query = self._split(self.query(self.norm_query(tokens)))
        key, value = self.key_value(self.norm_context(others)).chunk(2, dim=-1)
        mixed = attend(query, self._split(key), self._split(value)).transpose(1, 2).reshape(tokens.shape)
        projected: Tensor = self.project(mixed)
        return projected.view(clips, height, width, frames, dim).permute(0, 3, 1, 2, 4)

    def _split(self, tokens: Tensor) -> Tensor:
        split: Tensor = tokens.unflatten(-1, (self.heads, -1))
        return split.transpose(1, 2)

    def _pieces(self, x: Tensor) -> Iterator[tuple[slice, slice]]:
        clips, frames, height, width, _ = x.shape
        tall, wide = chunk_shape(self.chunks, clips * frames, height, width)
        for top in range(0, height, tall):
            for left in range(0, width, wide):
                yield slice(top, top + tall), slice(left, left + wide)


def chunk_shape(chunks: Chunks, frames: int, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of a chunk; adaptive ones shrink until their tokens fit."""
    tall, wide = chunks.CHUNK_SIZE, chunks.CHUNK_SIZE
    if chunks.CHUNK_SHAPE == "rows":
        tall, wide = max(1, chunks.CHUNK_SIZE**2 // width), width
    tall, wide = min(tall, height), min(wide, width)
    while chunks.ADAPTIVE_CHUNK and frames * tall * wide > chunks.MAX_BATCH_TOKENS and tall * wide > 1:
        tall, wide = ((tall + 1) // 2, wide) if tall >= wide else (tall, (wide + 1) // 2)
    return tall, wide
