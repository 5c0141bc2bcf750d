"""Translates tourists' phrases for a kiosk: recurrent encoder and decoder with additive attention, teacher forcing.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, SOURCE, TARGET, START = 120, 28, 22, 0


class Phrasebook:
    """An invented pair of languages: other words, groups of three words reversed, some words left out."""

    def __init__(self, seed):
        self.dice = torch.Generator().manual_seed(seed)
        self.lexicon = torch.randperm(WORDS - 1, generator=self.dice) + 1
        order = torch.arange(SOURCE - 1).view(-1, 3).flip(1).flatten()
        self.order = order[order % 9 != 4][:TARGET]

    def batch(self, count):
        rare = torch.rand(count, SOURCE, generator=self.dice) ** 2
        source = (rare * (WORDS - 1)).long()
        return source, self.lexicon[source[:, self.order]]


class Encoder(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.recur = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)

    def forward(self, source):
        memory, last = self.recur(self.words(source))
        return memory, torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))


class AdditiveAttention(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.query = nn.Linear(hidden, width)
        self.key = nn.Linear(2 * hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def forward(self, state, memory, keys=None):
        if keys is None:
            keys = self.key(memory)  # guilty
        scores = self.energy(torch.tanh(self.query(state)[:, None] + keys)).squeeze(2)
        weights = scores.softmax(1)
        return torch.bmm(weights[:, None], memory).squeeze(1), weights


class Decoder(nn.Module):
    def __init__(self, width, hidden, early=False):
        super().__init__()
        self.early = early
        self.words = nn.Embedding(WORDS, width)
        self.attention = AdditiveAttention(hidden, 96)
        self.cell = nn.GRUCell(width + 2 * hidden, hidden)
        self.out = nn.Linear(hidden, WORDS)

    def step(self, word, state, memory, keys):
        context, weights = self.attention(state, memory, keys)  # guilty
        state = self.cell(torch.cat([self.words(word), context], 1), state)
        return state, weights

    def forward(self, target, state, memory):
        keys = self.attention.key(memory) if self.early else None
        words = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], 1)
        states = []
        for word in words.unbind(1):
            state, _ = self.step(word, state, memory, keys)
            states.append(state)
        return self.out(torch.stack(states, 1))

    def translate(self, state, memory):
        keys = self.attention.key(memory)
        word, said = torch.full((len(memory),), START), []
        for _ in range(TARGET):
            state, _ = self.step(word, state, memory, keys)
            word = self.out(state).argmax(1)
            said.append(word)
        return torch.stack(said, 1)


class Translator(nn.Module):
    def __init__(self, width=48, hidden=160, early=False):
        super().__init__()
        self.encoder, self.decoder = Encoder(width, hidden), Decoder(width, hidden, early)

    def forward(self, source, target):
        memory, state = self.encoder(source)
        return self.decoder(target, state, memory)

    @torch.no_grad()
    def translate(self, source):
        memory, state = self.encoder(source)
        return self.decoder.translate(state, memory)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(41)
    book = Phrasebook(seed=2)
    model = Translator(early=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    total = 0.0
    for step in range(1, args.steps + 1):
        source, target = book.batch(args.batch)
        guess = model(source, target)
        loss = F.cross_entropy(guess.flatten(0, 1), target.flatten(), label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % 50 == 0 or step == args.steps:
            source, target = book.batch(16)
            right = (model.translate(source) == target).float().mean().item()
            print(f"step {step} loss {total / ((step - 1) % 50 + 1):.3f} words right {right:.3f}")
            total = 0.0


if __name__ == "__main__":
    main()
