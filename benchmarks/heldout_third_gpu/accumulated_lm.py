"""A language model with gradient accumulation: four micro-batches make an update.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 128
        self.attn_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.attn_norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.relu(self.up(self.mlp_norm(x))))


class LM(nn.Module):
    def __init__(self, vocab, length, width, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids, targets):
        logits = self.head(self.norm(self.blocks(self.embed(ids) + self.position)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Tokens:
    """Random windows of a memory-mapped file."""

    def __init__(self, path, length, batch, device):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.length, self.batch, self.device = length, batch, device
        self.rng = np.random.default_rng(93)

    def draw(self):
        starts = self.rng.integers(0, len(self.data) - self.length - 1, self.batch)
        rows = np.stack([self.data[s : s + self.length + 1] for s in starts]).astype(np.int64)
        rows = torch.from_numpy(rows)
        if self.device == "cuda":
            rows = rows.pin_memory().to(self.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="updates, of four micro-batches each")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(93)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vocab, length, batch, width, depth = (256, 32, 2, 128, 1) if args.tiny else (4096, 1024, 16, 1024, 4)
    accumulate = 4
    context = torch.autocast(device, dtype=torch.bfloat16) if device == "cuda" else nullcontext()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.bin"
        (np.random.default_rng(0).zipf(1.4, 3_000_000) % vocab).astype(np.uint16).tofile(path)
        tokens = Tokens(path, length, batch, device)
        model = LM(vocab, length, width, depth).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        for step in range(args.steps):
            total = torch.zeros((), device=device)
            for _ in range(accumulate):
                ids, targets = tokens.draw()
                with context:
                    loss = model(ids, targets) / accumulate
                loss.backward()
                total += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 25 == 24:
                print(f"update {step + 1}: loss {total.item():.4f}")
        torch.save(model.state_dict(), Path(folder) / "final.pt")


if __name__ == "__main__":
    main()
