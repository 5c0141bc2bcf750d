"""A small language model on made-up stories; gradients of four slices make one update, garbage is collected per epoch.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import gc
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    symbols: int = 96
    length: int = 40
    width: int = 128
    batch: int = 12
    accumulate: int = 4
    updates_per_epoch: int = 16
    lr: float = 1e-3


class Story(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.symbols, config.width)
        self.layer = nn.TransformerEncoderLayer(config.width, 4, 2 * config.width, 0.0, batch_first=True)
        self.out = nn.Linear(config.width, config.symbols)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(config.length))

    def forward(self, x):
        return self.out(self.layer(self.embed(x), src_mask=self.mask, is_causal=True))


def slices(config, generator):
    while True:
        start = torch.randint(config.symbols, (config.batch, 1), generator=generator)
        pace = torch.randint(1, 5, (config.batch, 1), generator=generator)
        yield (start + pace * torch.arange(config.length + 1)) % config.symbols


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    config = Config()
    torch.manual_seed(72)
    torch.set_num_threads(1)
    model = Story(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    source = slices(config, torch.Generator().manual_seed(72))
    for epoch in range(args.epochs):
        for _ in range(config.updates_per_epoch):
            total = 0.0
            for _ in range(config.accumulate):
                text = next(source)
                loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
                (loss / config.accumulate).backward()
                total += loss.item() / config.accumulate
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        gc.collect()
        print(f"epoch {epoch}: loss {total:.4f}")


if __name__ == "__main__":
    main()
