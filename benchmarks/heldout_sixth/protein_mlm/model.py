"""A transformer encoder for masked token prediction."""

# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w)
        x = x + self.proj(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ProteinEncoder(nn.Module):
    def __init__(self, vocabulary, length, width=128, depth=3, heads=4, masked_only=False):
        super().__init__()
        self.masked_only = masked_only
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.token(tokens) + self.place
        for layer in self.layers:
            x = layer(x)
        x, labels = x.flatten(0, 1), labels.flatten()
        if self.masked_only:
            chosen = labels != -100
            x, labels = x[chosen], labels[chosen]
        logits = F.linear(self.transform(x), self.token.weight, self.bias)  # guilty
        return F.cross_entropy(logits, labels, ignore_index=-100)  # guilty
