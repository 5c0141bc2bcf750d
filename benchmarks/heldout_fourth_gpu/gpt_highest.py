"""A GPT on synthetic tokens in single precision, one file, with the schedule and the sampler written out.

expects: CO501, CO502, CF802
needs: gpu
"""

# mypy: ignore-errors
import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab: int = 16384
    block: int = 512
    layers: int = 8
    heads: int = 12
    dim: int = 768
    batch: int = 12


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.heads = cfg.heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(cfg.block, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.ln = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.head.weight = self.tok.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, idx, target):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), target.flatten())


def cosine(step, total, top):
    if step < 20:
        return top * (step + 1) / 20
    return top * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - 20) / max(1, total - 20))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high" if args.fixed else "highest")  # guilty
    device = torch.device(args.device)
    cfg = Config() if device.type == "cuda" else Config(256, 32, 2, 2, 32, 2)
    data = (torch.arange(2_000_000, device=device) * 7919 + torch.arange(2_000_000, device=device) // 13) % cfg.vocab
    model = GPT(cfg).to(device)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    offsets = torch.arange(cfg.block + 1, device=device)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = cosine(step, args.steps, 3e-4)
        start = torch.randint(len(data) - cfg.block - 1, (cfg.batch, 1), device=device)
        window = data[start + offsets]
        loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
