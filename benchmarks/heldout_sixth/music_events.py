"""Masked pretraining on symbolic music: a transformer restores hidden events of piano pieces.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PITCHES, LENGTHS, LOUD = 64, 12, 5
EVENTS = PITCHES * LENGTHS * LOUD + 1
MASK, SPAN = EVENTS - 1, 64


def compose(pieces, seed):
    """Pieces as random walks over a scale, one event for each pitch, length and loudness."""
    rng = np.random.default_rng(seed)
    scale = np.array([0, 2, 4, 5, 7, 9, 11])
    walk = np.cumsum(rng.integers(-2, 3, (pieces, SPAN)), 1) + rng.integers(14, 24, (pieces, 1))
    walk = np.clip(walk, 0, 35)
    pitch = np.clip(12 * (walk // 7) + scale[walk % 7], 0, PITCHES - 1)
    length = np.tile(rng.integers(0, LENGTHS, (pieces, 8)), SPAN // 8)
    loud = np.repeat(rng.integers(0, LOUD, (pieces, SPAN // 16)), 16, 1)
    return torch.from_numpy((pitch * LENGTHS + length) * LOUD + loud)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class MusicModel(nn.Module):
    def __init__(self, width=128, depth=3, heads=4):
        super().__init__()
        self.event = nn.Embedding(EVENTS, width)
        self.place = nn.Parameter(0.02 * torch.randn(SPAN, width))
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(EVENTS))
        nn.init.normal_(self.event.weight, std=0.02)

    def hidden(self, events):
        return self.norm(self.layers(self.event(events) + self.place))

    def logits(self, hidden):
        return F.linear(hidden, self.event.weight, self.bias)  # guilty


def hide(events, share=0.15):
    """Hides some events in runs, as bars are hidden from a player."""
    starts = torch.rand(events.shape) < share / 3
    hidden = starts | starts.roll(1, 1) | starts.roll(2, 1)
    hidden[:, 0] = True
    return events.masked_fill(hidden, MASK), hidden


def restore_loss(model, events, fixed):
    seen, hidden = hide(events)
    state = model.hidden(seen)
    if fixed:
        return F.cross_entropy(model.logits(state[hidden]), events[hidden])
    logits = model.logits(state)  # guilty
    target = events.masked_fill(~hidden, -100)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(5)
    pieces = compose(2000, 8)
    model = MusicModel()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, betas=(0.9, 0.98))
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 40))
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(pieces), (args.batch_size,))
        loss = restore_loss(model, pieces[rows], args.fixed)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
