"""Protein sequences with gaps filled in: a transformer whose attention is written as in the textbook.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ACIDS, GAP = 21, 21


class TextbookAttention(nn.Module):
    """softmax(QK' / sqrt(d)) V, a line each."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # guilty
        scores = scores.float().masked_fill(~mask, float("-inf"))  # guilty
        weights = F.softmax(scores, dim=-1)  # guilty
        out = weights.to(v.dtype) @ v  # guilty
        return self.o(out.transpose(1, 2).flatten(2))


class FusedAttention(TextbookAttention):
    def forward(self, x, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, attention):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(dim), nn.LayerNorm(dim), attention
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)  # guilty
        return x + self.ff(self.norm2(x))


class ProteinModel(nn.Module):
    def __init__(self, dim, heads, depth, length, kind):
        super().__init__()
        self.emb, self.pos = nn.Embedding(ACIDS + 1, dim), nn.Embedding(length, dim)
        self.layers = nn.ModuleList(Layer(dim, kind(dim, heads)) for _ in range(depth))
        self.head = nn.Linear(dim, ACIDS)

    def forward(self, seq, mask):
        x = self.emb(seq) + self.pos.weight
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    batch, length, dim, heads, depth = (16, 1536, 512, 8, 6) if cuda else (2, 16, 16, 2, 1)
    kind = FusedAttention if args.fixed else TextbookAttention
    model = ProteinModel(dim, heads, depth, length, kind).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=cuda)
    place = torch.arange(length, device=device)
    for step in range(1, args.steps + 1):
        family = torch.randint(0, ACIDS, (batch, 1), device=device)
        seq = (family + place * (1 + place // 7)) % ACIDS
        gaps = torch.rand(seq.shape, device=device) < 0.15
        alive = place < torch.randint(length * 3 // 4, length + 1, (batch, 1), device=device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(seq.masked_fill(gaps, GAP), alive[:, None, None, :])
        losses = F.cross_entropy(logits.float().flatten(0, 1), seq.flatten(), reduction="none")
        loss = (losses * gaps.flatten()).sum() / gaps.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 55 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
