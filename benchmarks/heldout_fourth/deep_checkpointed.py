"""A deep transformer for long event sequences on little data; its blocks are recomputed in the backward pass.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class EventModel(nn.Module):
    def __init__(self, kinds, dim=96, depth=8):
        super().__init__()
        self.kind, self.gap = nn.Embedding(kinds, dim), nn.Linear(1, dim)
        self.layers = nn.ModuleList(Layer(dim, 6) for _ in range(depth))
        self.next_kind, self.next_gap = nn.Linear(dim, kinds), nn.Linear(dim, 1)

    def forward(self, kinds, gaps):
        x = self.kind(kinds) + self.gap(gaps.log1p().unsqueeze(-1))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.next_kind(x), self.next_gap(x).squeeze(-1)


def events(n, length, kinds):
    g = torch.Generator().manual_seed(0)
    start = torch.randint(0, kinds, (n, 1), generator=g)
    walk = (start + torch.randint(0, 3, (n, length), generator=g).cumsum(1)) % kinds
    gaps = torch.rand(n, length, generator=g).clamp(min=1e-3).log().neg() * (1 + walk % 4)
    return TensorDataset(walk, gaps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=115)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = events(64, args.length, 24)
    loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 2, drop_last=True))
    model = EventModel(24)
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, betas=(0.9, 0.95))
    step = 0
    while step < args.steps:
        for kinds, gaps in loader:
            logits, log_gap = model(kinds[:, :-1], gaps[:, :-1])
            loss_kind = F.cross_entropy(logits.flatten(0, 1), kinds[:, 1:].flatten())
            loss_gap = F.huber_loss(log_gap, gaps[:, 1:].log1p())
            optimizer.zero_grad()
            (loss_kind + loss_gap).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step} kind {loss_kind.item():.4f} gap {loss_gap.item():.4f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
