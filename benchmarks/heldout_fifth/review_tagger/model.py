# mypy: ignore-errors
"""A convolutional stem and an encoder of bidirectional attention over the words."""

import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.heads = heads

    def forward(self, x, keep):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, keep).transpose(1, 2).reshape(b, n, d))
        return x + self.ff(self.norm2(x))


class Tagger(nn.Module):
    def __init__(self, vocab, dim, depth, heads, tags=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.stem = nn.Conv1d(dim, dim, 3, padding=1)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.out = nn.Linear(dim, tags)

    def forward(self, words):
        keep = (words != 0)[:, None, None]
        x = self.embed(words)
        x = x + self.stem(x.transpose(1, 2)).transpose(1, 2) * (words != 0)[..., None]
        for layer in self.layers:
            x = layer(x, keep)
        return self.out(x)
