"""A decoder with rotary positions trained in bfloat16 with accumulated gradients and a cheap look at held-out text.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotary(length, dim, device):
    freq = 10000 ** (-torch.arange(0, dim, 2, device=device) / dim)
    angle = torch.arange(length, device=device).unsqueeze(1) * freq
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LM(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        cos, sin = rotary(length, dim // heads, None)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, target):
        x = self.tok(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fixed", action="store_true", help="changes nothing")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--accumulate", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    vocab, dim, depth, heads, length, batch = (8192, 1536, 8, 12, 1024, 8) if cuda else (64, 32, 1, 2, 16, 2)
    model = LM(vocab, dim, depth, heads, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), fused=cuda)
    text = torch.arange(1_000_000, device=device) ** 2 % vocab
    window = torch.arange(length + 1, device=device)

    def micro(lo, hi):
        ids = text[torch.randint(lo, hi - length - 1, (batch, 1), device=device) + window]
        with torch.autocast(device.type, torch.bfloat16):
            return model(ids[:, :-1], ids[:, 1:])

    for step in range(1, args.steps + 1):
        for _ in range(args.accumulate):
            (micro(0, 900_000) / args.accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            with torch.no_grad():
                print(f"step {step} held out {micro(900_000, 1_000_000).item():.4f}")


if __name__ == "__main__":
    main()
