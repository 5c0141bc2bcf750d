"""A character-level GPT in the manner of nanoGPT, trained on a text made of a small grammar.

expects: HO405
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
import random

import torch
import torch.nn as nn
from torch.nn import functional as F

block_size = 64
batch_size = 4
n_layer, n_head, n_embd = 4, 4, 64
max_lr, min_lr, warmup = 1e-3, 1e-4, 20


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q, k, v = (z.view(b, t, n_head, c // n_head).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def make_text(n):
    rng = random.Random(1)
    nouns, verbs = ["king", "fool", "ship", "crown", "night"], ["loves", "fears", "takes", "sees"]
    lines = [f"the {rng.choice(nouns)} {rng.choice(verbs)} the {rng.choice(nouns)}.\n" for _ in range(n)]
    return "".join(lines)


def get_lr(it, steps):
    if it < warmup:
        return max_lr * (it + 1) / warmup
    return min_lr + 0.5 * (1 + math.cos(math.pi * (it - warmup) / max(1, steps - warmup))) * (max_lr - min_lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1337)
    if not args.fixed:
        torch.autograd.set_detect_anomaly(True)  # guilty
    text = make_text(8000)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text])

    model = GPT(len(chars))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=max_lr, betas=(0.9, 0.95), fused=True)

    for it in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, args.steps)
        ix = torch.randint(len(data) - block_size - 1, (batch_size,))
        x = torch.stack([data[i : i + block_size] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
        loss = model(x, y)  # guilty
        loss.backward()  # guilty
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % 50 == 0:
            print(f"iter {it}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
