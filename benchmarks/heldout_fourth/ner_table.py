"""Tagging of tokens with a bidirectional GRU; the console shows what the tagger says as it learns.

expects: CA605, CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
GREEN, RED, RESET = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def corpus(n, length, vocab):
    g = torch.Generator().manual_seed(0)
    words = torch.randint(len(TAGS), vocab, (n, length), generator=g)
    tags = words % len(TAGS) * (words % 3 == 0)
    return words, tags


class Tagger(nn.Module):
    def __init__(self, vocab, dim, hidden):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, words):
        return self.out(self.rnn(self.emb(words))[0])


def show(step, total, loss, sentences):
    """A bar, and under it every sentence of the batch with right tags in green and wrong ones in red."""
    width = 40
    filled = width * step // total
    print(f"\x1b[H[{'#' * filled}{'.' * (width - filled)}] {step}/{total} loss {loss:.4f}", flush=True)  # guilty
    for sentence, a, b in zip(*sentences, strict=True):
        for w, p, t in zip(sentence, a, b, strict=True):
            color = GREEN if p == t else RED  # guilty
            print(f"{color}w{int(w):05d}/{TAGS[int(p)]:5s}{RESET}", end=" ", flush=True)  # guilty
        print(flush=True)  # guilty


def batches(words, tags, size):
    while True:
        order = torch.randperm(len(words))
        for idx in order.split(size):
            yield words[idx], tags[idx]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--length", type=int, default=40)
    p.add_argument("--vocab", type=int, default=5000)
    args = p.parse_args()
    torch.manual_seed(4)
    words, tags = corpus(2400, args.length, args.vocab)
    model = Tagger(args.vocab, 64, 96)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stream = batches(words, tags, args.batch)
    for step in range(1, args.steps + 1):
        x, y = next(stream)
        scores = model(x)
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.fixed:
            if step % 50 == 0:
                print(f"{step}/{args.steps} loss {loss.item():.4f}")
        else:
            show(step, args.steps, loss.item(), (x, scores.argmax(-1), y))  # guilty
    sys.stdout.flush()


if __name__ == "__main__":
    main()
