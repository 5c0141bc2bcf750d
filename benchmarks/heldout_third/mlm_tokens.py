"""Masked language modelling with a small encoder whose layers are written out by hand.

expects: HO406
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib
import math

import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function

VOCAB, MASK, LENGTH, DIM, HEADS = 512, 1, 24, 32, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def heads(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = self.heads(self.q(h)), self.heads(self.k(h)), self.heads(self.v(h))
        score = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), -1)
        x = x + self.o((score @ v).transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))


class MLM(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.bias = nn.LayerNorm(DIM), nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tok.weight.T + self.bias


def mask_tokens(ids):
    chosen = torch.rand(ids.shape) < 0.15
    labels = torch.where(chosen, ids, -100)
    return torch.where(chosen, MASK, ids), labels


def train_loop(model, text, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(steps):
        start = torch.randint(0, len(text) - LENGTH, (4, 1))
        ids, labels = mask_tokens(text[start + torch.arange(LENGTH)])
        with record_function("forward"):
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        with record_function("backward"):
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 4))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = (torch.cumsum(torch.randint(1, 4, (20000,)), 0) % (VOCAB - 2)) + 2
    model = MLM()
    watch = contextlib.nullcontext()
    if not args.fixed:
        watch = profile(  # guilty
            activities=[ProfilerActivity.CPU],  # guilty
            record_shapes=True,  # guilty
        )
    with watch:  # guilty
        train_loop(model, text, args.steps)  # guilty


if __name__ == "__main__":
    main()
