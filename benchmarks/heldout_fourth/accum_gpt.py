"""A character GPT with gradient accumulation, weight tying, a cosine schedule and a short evaluation now and then.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import inspect
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 65
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 96


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn, self.c_proj = (nn.Linear(config.n_embd, k * config.n_embd, bias=False) for k in (3, 1))
        self.n_head = config.n_head

    def forward(self, x):
        q, k, v = self.c_attn(x).unflatten(2, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        n = config.n_embd
        self.ln_1, self.ln_2 = nn.LayerNorm(n), nn.LayerNorm(n)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte, self.wpe = (nn.Embedding(k, config.n_embd) for k in (config.vocab_size, config.block_size))
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self.init)
        self.wte.weight = self.lm_head.weight

    @staticmethod
    def init(m):
        if isinstance(m, nn.Linear | nn.Embedding):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def text():
    source = inspect.getsource(torch.nn.functional)[:200_000]
    chars = sorted(set(source))[:64]
    stoi = {c: i + 1 for i, c in enumerate(chars)}
    return torch.tensor([stoi.get(c, 0) for c in source])


def get_batch(data, size, block):
    ix = torch.randint(len(data) - block - 1, (size, 1))
    win = data[ix + torch.arange(block + 1)]
    return win[:, :-1], win[:, 1:]


def lr_at(it, total, top=1e-3):
    if it < 10:
        return top * (it + 1) / 10
    return 0.1 * top + 0.45 * top * (1 + math.cos(math.pi * (it - 10) / max(1, total - 10)))


@torch.no_grad()
def estimate_loss(model, data, config):
    model.eval()
    out = torch.stack([model(*get_batch(data, 8, config.block_size)) for _ in range(2)]).mean()
    model.train()
    return out.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--gradient-accumulation-steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1337)
    config, data = GPTConfig(), text()
    print(asdict(config))
    train_data, val_data = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = GPT(config)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}])
    for it in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(it, args.steps)
        if it % 50 == 0:
            print(f"step {it}: val {estimate_loss(model, val_data, config):.4f}")
        for _ in range(args.gradient_accumulation_steps):
            loss = model(*get_batch(train_data, 6, config.block_size)) / args.gradient_accumulation_steps
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
