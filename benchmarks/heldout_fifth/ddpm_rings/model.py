# mypy: ignore-errors
"""A residual network on vectors, conditioned on time and kind, and the average of its weights."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, cond):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Linear(cond, 2 * width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, cond):
        gain, shift = self.scale(cond).chunk(2, -1)
        return x + self.outer(F.silu(self.inner(self.norm(x) * (1 + gain) + shift)))


class Denoiser(nn.Module):
    def __init__(self, size=32, width=256, depth=4, kinds=5):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, -math.log(1000), 32)))
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.kind = nn.Embedding(kinds, 128)
        self.inp, self.out = nn.Linear(size, width), nn.Linear(width, size)
        self.blocks = nn.ModuleList([Block(width, 128) for _ in range(depth)])

    def forward(self, x, t, kind):
        angle = t[:, None] * self.freq
        cond = self.time(torch.cat([angle.sin(), angle.cos()], -1)) + self.kind(kind)
        x = self.inp(x)
        for block in self.blocks:
            x = block(x, cond)
        return self.out(x)


class Average:
    def __init__(self, model, decay=0.995):
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - self.decay)
