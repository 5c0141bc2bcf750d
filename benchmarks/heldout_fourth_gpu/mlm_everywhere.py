"""Masked language modelling with a large vocabulary; a seventh of the tokens is hidden and guessed.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

IGNORE = -100


@dataclass
class Size:
    vocab: int = 64000
    dim: int = 512
    depth: int = 4
    heads: int = 8
    length: int = 256
    batch: int = 96


class MaskingCollator:
    """The same number of hidden tokens in every row, so that all shapes stay as they are."""

    def __init__(self, size, device):
        self.size, self.device = size, device
        self.hidden = size.length // 7

    def __call__(self, ids):
        order = torch.rand(ids.shape, device=self.device).argsort(1)[:, : self.hidden]
        labels = torch.full_like(ids, IGNORE).scatter(1, order, ids.gather(1, order))
        return ids.scatter(1, order, self.size.vocab - 1), labels, order


class Encoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.tok, self.pos = nn.Embedding(s.vocab, s.dim), nn.Embedding(s.length, s.dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(s.dim, s.heads, 4 * s.dim, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(s.depth)
        )
        self.norm = nn.LayerNorm(s.dim)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class MLMHead(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.dense, self.norm = nn.Linear(s.dim, s.dim), nn.LayerNorm(s.dim)
        self.decoder = nn.Linear(s.dim, s.vocab)

    def forward(self, x):
        return self.decoder(self.norm(F.gelu(self.dense(x))))  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--device", default="cuda")
    args = cli.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    size = Size() if cuda else Size(200, 16, 1, 2, 28, 2)
    body, head = Encoder(size).to(device), MLMHead(size).to(device)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], 3e-4, fused=cuda)
    mask = MaskingCollator(size, device)
    text = torch.arange(4_000_000 if cuda else 4000, device=device) * 31 % (size.vocab - 1)
    window = torch.arange(size.length, device=device)
    for step in range(1, args.steps + 1):
        at = torch.randint(0, len(text) - size.length, (size.batch, 1), device=device)
        ids, labels, where = mask(text[at + window])
        with torch.autocast(device.type, torch.bfloat16):
            hidden = body(ids)
            if args.fixed:
                hidden = hidden.gather(1, where.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
                labels = labels.gather(1, where)
            logits = head(hidden)  # guilty
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)  # guilty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
