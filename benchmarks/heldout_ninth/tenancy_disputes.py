"""Fine-tunes the upper part of a small transformer encoder to sort letters about tenancy disputes, with an own trainer.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WORDS, TOPICS, LONGEST, HIDDEN = 4000, 6, 56, 1


def letters(count, seed):
    """Letters of uneven length; words of a topic cluster, most words are common to all."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, TOPICS, count)
    texts = []
    for topic in topics:
        length = int(rng.integers(16, LONGEST))
        words = np.minimum(rng.zipf(1.3, length) + 10, WORDS - 1)
        marked = rng.random(length) < 0.12
        words[marked] = 1000 + 400 * topic + rng.integers(0, 40, marked.sum())
        texts.append(torch.from_numpy(words))
    return texts, torch.from_numpy(topics)


def batches(texts, topics, size, rng):
    """Endless batches of letters of like length, padded with 0 to the longest of the batch."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    groups = [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
    while True:
        for number in rng.permutation(len(groups)):
            group = groups[number]
            words = nn.utils.rnn.pad_sequence([texts[place] for place in group], batch_first=True)
            yield words, topics[group]


class Encoder(nn.Module):
    def __init__(self, width=128, heads=4, depth=6):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LONGEST, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, words):
        padded = words == 0
        x = self.words(words) + self.places[: words.shape[1]]
        for block in self.blocks:
            x = block(x, src_key_padding_mask=padded)  # guilty
        kept = (~padded).unsqueeze(2).to(x.dtype)
        return (self.norm(x) * kept).sum(1) / kept.sum(1)


class Sorter(nn.Module):
    def __init__(self, encoder, width=128):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, TOPICS))

    def forward(self, words):
        return self.head(self.encoder(words))  # guilty

    def lower(self, kept):
        """Names of the parameters below the last `kept` blocks."""
        depth = len(self.encoder.blocks)
        above = tuple(f"encoder.blocks.{number}." for number in range(depth - kept, depth))
        return {name for name, _ in self.named_parameters() if not name.startswith((*above, "head.", "encoder.norm."))}


class Trainer:
    """Tunes the head and the last blocks; the rest keeps its pretrained values."""

    def __init__(self, model, kept, parts, total, detached):
        self.model, self.parts = model, parts
        lower = model.lower(kept)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not (detached and name in lower))  # guilty
        decayed, plain = [], []
        for name, parameter in model.named_parameters():
            if name not in lower:  # guilty
                (decayed if parameter.ndim > 1 else plain).append(parameter)
        self.tuned = decayed + plain
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], 5e-4
        )
        warm = max(1, total // 10)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: (step + 1) / warm if step < warm else 0.5 + 0.5 * math.cos(math.pi * step / total),
        )

    def step(self, source):
        self.model.zero_grad(set_to_none=True)
        mean = 0.0
        for _ in range(self.parts):
            words, topics = next(source)
            words = words.masked_fill((torch.rand(words.shape) < 0.1) & (words > 0), HIDDEN)
            loss = F.cross_entropy(self.model(words), topics) / self.parts
            loss.backward()  # guilty
            mean += loss.detach()
        nn.utils.clip_grad_norm_(self.tuned, 1.0)
        self.optimizer.step()
        self.schedule.step()
        return mean

    @torch.no_grad()
    def evaluate(self, source, count):
        self.model.eval()
        right = seen = 0
        for _ in range(count):
            words, topics = next(source)
            right += (self.model(words).argmax(1) == topics).sum().item()
            seen += len(topics)
        self.model.train()
        return right / seen


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=4)
    cli.add_argument("--parts", type=int, default=2)
    cli.add_argument("--kept", type=int, default=1)
    args = cli.parse_args()
    torch.manual_seed(8)

    source = batches(*letters(1200, seed=1), args.batch, np.random.default_rng(2))
    held = batches(*letters(64, seed=3), 32, np.random.default_rng(4))
    trainer = Trainer(Sorter(Encoder()), args.kept, args.parts, args.steps, detached=args.fixed)
    total = 0.0
    for step in range(1, args.steps + 1):
        total += trainer.step(source)
        if step % 50 == 0 or step == args.steps:
            rate = trainer.schedule.get_last_lr()[0]
            print(f"step {step} mean loss {total / step:.3f} lr {rate:.2e} held out {trainer.evaluate(held, 2):.3f}")


if __name__ == "__main__":
    main()
