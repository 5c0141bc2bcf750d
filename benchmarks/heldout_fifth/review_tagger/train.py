"""Tags every word of a review with the sentiment it carries, with a small attention encoder.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from data import PadTo, Reviews, pad_longest
from model import Tagger
from torch.utils.data import DataLoader

MAX_LEN = 176


def build(args):
    train = Reviews(6000, 4000, MAX_LEN, seed=0)
    collate = pad_longest if args.fixed else PadTo(MAX_LEN)  # guilty
    gen = torch.Generator().manual_seed(1)
    loader = DataLoader(train, 16, shuffle=True, drop_last=True, collate_fn=collate, generator=gen)
    return loader, Tagger(4000, dim=96, depth=2, heads=4)


def epochs(loader):
    epoch = 0
    while True:
        for words, tags in loader:
            yield epoch, words, tags
        epoch += 1


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--lr", type=float, default=1e-3)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    loader, model = build(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps + 1)
    seen = hits = 0
    for step, (epoch, words, tags) in enumerate(epochs(loader), 1):
        logits = model(words)  # guilty
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()  # guilty
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        real = tags >= 0
        seen += int(real.sum())
        hits += int((logits.argmax(-1) == tags)[real].sum())
        if step % 50 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f} accuracy {hits / seen:.3f}")
            seen = hits = 0
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
