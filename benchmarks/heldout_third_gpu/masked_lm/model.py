"""A bidirectional encoder with a tied output layer."""

# mypy: ignore-errors

import torch
import torch.nn as nn
import torch.nn.functional as F


class EncoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class MaskedLM(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.vocab, settings.width)
        self.places = nn.Parameter(0.02 * torch.randn(settings.max_length, settings.width))
        self.layers = nn.ModuleList(EncoderLayer(settings.width) for _ in range(settings.depth))
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, ids, valid):
        x = self.words(ids) + self.places[: ids.shape[1]]
        mask = valid[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return F.linear(self.norm(x), self.words.weight)
