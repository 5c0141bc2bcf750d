"""A small GPT on a stream of symbols, with windows picked by how rare their symbols are.

expects: SY301
needs: gpu
"""

# mypy: ignore-errors

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block_size, layers, width):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Parameter(0.02 * torch.randn(block_size, width))
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Windows:
    """Draws a pool of windows and keeps those with the rarest symbols."""

    def __init__(self, corpus, vocab, block_size, batch, pool):
        self.corpus, self.block_size, self.batch, self.pool = corpus, block_size, batch, pool
        counts = np.bincount(corpus, minlength=vocab) + 1
        self.rarity = -np.log(counts / counts.sum()).astype(np.float32)
        self.rng = np.random.default_rng(7)

    def next(self, device):
        starts = self.rng.integers(0, len(self.corpus) - self.block_size - 1, self.pool)
        windows = self.corpus[starts[:, None] + np.arange(self.block_size + 1)]
        best = np.argpartition(-self.rarity[windows].mean(axis=1), self.batch)[: self.batch]
        both = torch.from_numpy(windows[best].astype(np.int64))
        if device == "cuda":
            both = both.pin_memory()
        both = both.to(device, non_blocking=True)
        return both[:, :-1], both[:, 1:]


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total, self.count = self.total + value, self.count + 1

    def mean(self):
        return float(self.total) / max(self.count, 1)


def learning_rate(step, steps, peak=6e-4):
    if step < 20:
        return peak * (step + 1) / 20
    return 0.1 * peak + 0.45 * peak * (1 + math.cos(math.pi * step / steps))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=340)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1337)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vocab, block_size, batch, layers, width, pool = 512, 512, 48, 6, 768, 2048
    if args.tiny:
        block_size, batch, layers, width, pool = 32, 4, 1, 64, 64
    corpus = np.random.default_rng(0).zipf(1.3, 4_000_000) % vocab
    windows = Windows(corpus.astype(np.uint16), vocab, block_size, batch, pool)
    model = GPT(vocab, block_size, layers, width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    meter = Meter()
    x, y = windows.next(device)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(x, y)
        if args.fixed:
            meter.add(loss.detach())
        else:
            meter.add(loss.item())  # guilty
        x, y = windows.next(device)  # the next batch, while the GPU is at this one
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {meter.mean():.4f}")
            meter = Meter()
    print("done", round(loss.item(), 4))


if __name__ == "__main__":
    main()
