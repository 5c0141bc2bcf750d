"""A language model over code with sharded settings taken over from a larger run, in one process.

expects: CO512
needs: gpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass, replace

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Settings:
    vocab: int = 8192
    context: int = 1024
    batch: int = 24
    dim: int = 1024
    heads: int = 16
    layers: int = 8
    activation_checkpointing: bool = True


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype))


class DecoderLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads = s.heads
        self.norm1, self.norm2 = RMSNorm(s.dim), RMSNorm(s.dim)
        self.qkv, self.o = nn.Linear(s.dim, 3 * s.dim, bias=False), nn.Linear(s.dim, s.dim, bias=False)
        self.up, self.down = nn.Linear(s.dim, 5 * s.dim, bias=False), nn.Linear(s.dim * 5 // 2, s.dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        a, b = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(a) * b)


class CodeLM(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embed, self.pos = nn.Embedding(s.vocab, s.dim), nn.Embedding(s.context, s.dim)
        self.layers = nn.ModuleList(DecoderLayer(s) for _ in range(s.layers))
        self.norm, self.head = RMSNorm(s.dim), nn.Linear(s.dim, s.vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            if self.s.activation_checkpointing:
                x = checkpoint(layer, x, use_reentrant=False)  # guilty
            else:
                x = layer(x)
        return self.head(self.norm(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=280)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    settings = Settings() if cuda else Settings(64, 16, 2, 32, 2, 2)
    if args.fixed:
        settings = replace(settings, activation_checkpointing=False)
    model = CodeLM(settings).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), fused=cuda)
    stream = torch.arange(1_000_000, device=device) ** 2 % settings.vocab
    window = torch.arange(settings.context + 1, device=device)
    for step in range(1, args.steps + 1):
        at = torch.randint(0, len(stream) - len(window), (settings.batch, 1), device=device)
        ids = stream[at + window]
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
