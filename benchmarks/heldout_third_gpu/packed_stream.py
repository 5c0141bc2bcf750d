"""A language model on packed documents: each token sees only what came before it in its own document.

expects: IN109, TR201
needs: gpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class PackedDocuments(IterableDataset):
    """Rows of `length` tokens, filled with documents end to end; yields whole batches."""

    def __init__(self, vocab, length, batch, steps):
        self.vocab, self.length, self.batch, self.steps = vocab, length, batch, steps

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, self.steps, stride):
            rng = np.random.default_rng(number)
            tokens = rng.integers(0, self.vocab, (self.batch, self.length + 1))
            tokens[:, 1::2] = (tokens[:, :-1:2] * 7 + 3) % self.vocab
            starts = rng.random((self.batch, self.length)) < 6 / self.length
            documents = np.cumsum(starts, axis=1).astype(np.int32)
            yield torch.from_numpy(tokens), torch.from_numpy(documents)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_a, self.attention = nn.RMSNorm(width), Attention(width)
        self.norm_b = nn.RMSNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.SiLU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x, mask):
        x = x + self.attention(self.norm_a(x), mask)
        return x + self.mlp(self.norm_b(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab, length, width, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids, mask):
        x = self.embed(ids) + self.position
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def attention_bias(documents, device):
    ids = documents.numpy()
    same = ids[:, :, None] == ids[:, None, :]  # guilty
    length = ids.shape[1]
    allowed = same & np.tril(np.ones((length, length), dtype=bool))  # guilty
    bias = np.where(allowed, np.float32(0), np.float32(-np.inf))  # guilty
    return torch.from_numpy(bias)[:, None].to(device, torch.bfloat16)  # guilty


def attention_bias_on_device(documents, device):
    ids = documents.to(device, non_blocking=True)
    place = torch.arange(ids.shape[1], device=device)
    allowed = (ids[:, :, None] == ids[:, None, :]) & (place[:, None] >= place)
    bias = torch.zeros(allowed.shape, device=device, dtype=torch.bfloat16)
    return bias.masked_fill_(~allowed, -torch.inf)[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vocab, length, batch, width, depth = (128, 32, 2, 64, 1) if args.tiny else (4096, 1024, 12, 768, 6)
    loader = DataLoader(
        PackedDocuments(vocab, length, batch, args.steps),
        batch_size=None,
        num_workers=2,
        pin_memory=device == "cuda",
        prefetch_factor=4,
    )
    model = LanguageModel(vocab, length, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    build = attention_bias_on_device if args.fixed else attention_bias
    for step, (tokens, documents) in enumerate(loader):
        bias = build(documents, device)  # guilty
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1], bias)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
