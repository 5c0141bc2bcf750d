"""A part-of-speech tagger over hashed character n-grams, set up by `config.toml`.

expects: CF801, IN101
needs: cpu
"""

# mypy: ignore-errors

import argparse
import tomllib
from pathlib import Path

import torch
from data import TAGS, make_loader
from torch import nn


class Tagger(nn.Module):
    def __init__(self, buckets: int, width: int):
        super().__init__()
        self.grams = nn.Embedding(buckets, width, padding_idx=0)
        self.context = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, TAGS)

    def forward(self, grams):
        words = self.grams(grams).mean(2)
        return self.out(self.context(words)[0])


def batches(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("config.toml"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)

    config = tomllib.loads(args.config.read_text())
    loader = make_loader(config, "data" if args.fixed else "loader")
    model = Tagger(**config["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["optim"]["lr"])
    for step, (grams, tags) in zip(range(args.steps), batches(loader), strict=False):
        scores = model(grams)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            right = (scores.argmax(-1) == tags).float().mean()
            print(f"step {step + 1} loss {loss:.3f} accuracy {right:.3f}")


if __name__ == "__main__":
    main()
