"""Embeddings of products by contrastive learning, with a ledger that makes every run traceable.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


class Ledger:
    """One line per step: which data went in, which weights came out."""

    def __init__(self, path, every):
        self.file, self.every, self.chain = path.open("w"), every, b""

    def digest_batch(self, batch):
        h = hashlib.sha512()
        for row in batch:
            h.update(row.numpy().tobytes())  # guilty
        return h.hexdigest()

    def digest_state(self, *modules):
        h = hashlib.sha512(self.chain)
        for module in modules:
            for name, value in sorted(module.state_dict().items()):
                h.update(name.encode())
                h.update(value.numpy().tobytes())  # guilty
        self.chain = h.digest()
        return h.hexdigest()

    def write(self, step, views, modules):
        if step % self.every:
            return
        entry = {
            "step": step,
            "data": [self.digest_batch(v) for v in views],  # guilty
            "weights": self.digest_state(*modules),  # guilty
        }
        self.file.write(json.dumps(entry) + "\n")


class Tower(nn.Module):
    def __init__(self, inputs=256, width=1024, out=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, out)

    def forward(self, x):
        return F.normalize(self.head(self.body(x)), dim=1)


class Products:
    """Two views of a product: what the seller writes and what buyers look at, both as bags of features."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.latent = torch.randn(n, 64, generator=g)
        self.a, self.b = torch.randn(2, 64, 256, generator=g) / 8

    def batches(self, size):
        while True:
            for idx in torch.randperm(len(self.latent)).split(size):
                z = self.latent[idx]
                yield z @ self.a + 0.2 * torch.randn(len(idx), 256), z @ self.b + 0.2 * torch.randn(len(idx), 256)


def info_nce(za, zb, scale):
    logits = za @ zb.T * scale.exp()
    target = torch.arange(len(za))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    seller, buyer = Tower(), Tower()
    scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.SGD([*seller.parameters(), *buyer.parameters(), scale], lr=0.05, momentum=0.9)
    with tempfile.TemporaryDirectory() as tmp:
        ledger = Ledger(Path(tmp) / "ledger.jsonl", every=50 if args.fixed else 1)
        for step, (a, b) in enumerate(Products(4096, 1).batches(args.batch), 1):
            loss = info_nce(seller(a), buyer(b), scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ledger.write(step, (a, b), (seller, buyer))  # guilty
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f} scale {scale.exp().item():.2f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
