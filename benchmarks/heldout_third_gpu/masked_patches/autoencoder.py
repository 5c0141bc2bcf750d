"""A masked autoencoder: a quarter of the patches is encoded, and the others are rebuilt."""

# mypy: ignore-errors

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.narrow(F.relu(self.wide(self.norm2(x))))


class MaskedAutoencoder(nn.Module):
    def __init__(self, side, patch, width, depth):
        super().__init__()
        self.patch, self.tokens = patch, (side // patch) ** 2
        self.visible = self.tokens // 4
        inputs = 3 * patch * patch
        self.embed = nn.Linear(inputs, width)
        self.place = nn.Parameter(0.02 * torch.randn(self.tokens, width))
        self.encoder = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.blank = nn.Parameter(torch.zeros(1, 1, width // 2))
        self.lower = nn.Linear(width, width // 2)
        self.decoder_place = nn.Parameter(0.02 * torch.randn(self.tokens, width // 2))
        self.decoder = nn.Sequential(Layer(width // 2), Layer(width // 2))
        self.rebuild = nn.Linear(width // 2, inputs)

    def patches(self, x):
        p = self.patch
        return x.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def forward(self, x):
        patches = self.patches(x)
        order = torch.rand(len(x), self.tokens, device=x.device).argsort(dim=1)
        back = order.argsort(dim=1)
        keep = order[:, : self.visible, None]
        h = self.embed(patches) + self.place
        h = self.encoder(h.gather(1, keep.expand(-1, -1, h.shape[-1])))
        h = self.lower(h)
        h = torch.cat([h, self.blank.to(h.dtype).expand(len(h), self.tokens - self.visible, -1)], dim=1)
        h = h.gather(1, back[..., None].expand(-1, -1, h.shape[-1])) + self.decoder_place
        error = (self.rebuild(self.decoder(h)).float() - patches).square().mean(-1)
        return (error * (back >= self.visible)).sum() / (len(x) * (self.tokens - self.visible))
