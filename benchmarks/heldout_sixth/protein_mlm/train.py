"""Pretraining of a protein encoder on masked 3-mers, with a tied output layer.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from data import Masking, Proteins
from model import ProteinEncoder
from torch.utils.data import DataLoader

VOCABULARY, LENGTH = 8002, 64


def warmup_cosine(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--mask-share", type=float, default=0.15)
    args = cli.parse_args()
    torch.manual_seed(12)
    loader = DataLoader(
        Proteins(1500, LENGTH, VOCABULARY, 13),
        batch_size=8,
        shuffle=True,
        drop_last=True,
        collate_fn=Masking(args.mask_share, 14),
        generator=torch.Generator().manual_seed(15),
    )
    model = ProteinEncoder(VOCABULARY, LENGTH, masked_only=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: warmup_cosine(s, 10, args.steps))
    step = 0
    while step < args.steps:
        for tokens, labels in loader:
            loss = model(tokens, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} perplexity {math.exp(min(20, loss.item())):.1f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
