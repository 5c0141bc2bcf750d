"""Translates transliterated clay tablets, sign by sign: recurrent encoder and decoder with additive attention.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIGNS, WORDS = 90, 140
PAD, START = 0, 1


class Tablets(Dataset):
    """Pairs of sign sequences and words; every word is written with one or two signs, the verb moves to the end."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        grammar = np.random.default_rng(0)
        first, second = grammar.integers(2, SIGNS, (2, WORDS))
        short = grammar.random(WORDS) < 0.2
        self.pairs = []
        for _ in range(count):
            words = rng.integers(2, WORDS, rng.integers(20, 22))
            order = np.concatenate([words[:1], words[2:], words[1:2]])
            signs = [sign for word in order for sign in ([first[word]] if short[word] else [first[word], second[word]])]
            self.pairs.append((torch.tensor(signs), torch.tensor([START, *words])))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return self.pairs[index]


def collate(pairs):
    signs, words = zip(*pairs)
    pad = nn.utils.rnn.pad_sequence
    return pad(signs, batch_first=True, padding_value=PAD), pad(words, batch_first=True, padding_value=PAD)


class Attention(nn.Module):
    """Additive attention: score = v tanh(W query + U memory)."""

    def __init__(self, query, memory, width):
        super().__init__()
        self.query = nn.Linear(query, width)
        self.memory = nn.Linear(memory, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, state, memory, padded, keys=None):
        if keys is None:
            keys = self.memory(memory)  # guilty
        energy = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
        weights = energy.masked_fill(padded, float("-inf")).softmax(-1)
        return torch.bmm(weights[:, None], memory).squeeze(1)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(SIGNS, 64, padding_idx=PAD)
        self.rnn = nn.GRU(64, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)

    def forward(self, signs):
        memory, last = self.rnn(self.embed(signs))
        return memory, torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))


class Decoder(nn.Module):
    def __init__(self, width, early_keys):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 64, padding_idx=PAD)
        self.attention = Attention(width, 2 * width, width)
        self.cell = nn.GRUCell(64 + 2 * width, width)
        self.out = nn.Linear(width, WORDS)
        self.early_keys = early_keys

    def forward(self, words, state, memory, padded):
        keys = self.attention.memory(memory) if self.early_keys else None
        states = []
        for embedded in self.embed(words).unbind(1):
            context = self.attention(state, memory, padded, keys)  # guilty
            state = self.cell(torch.cat([embedded, context], -1), state)
            states.append(state)
        return self.out(torch.stack(states, 1))


class Reader(nn.Module):
    def __init__(self, width, early_keys):
        super().__init__()
        self.encoder, self.decoder = Encoder(width), Decoder(width, early_keys)

    def forward(self, signs, words):
        memory, state = self.encoder(signs)
        return self.decoder(words, state, memory, signs == PAD)  # guilty


def word_loss(scores, wanted):
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=PAD)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for signs, words in loader:
        guess, wanted = model(signs, words[:, :-1]).argmax(-1), words[:, 1:]
        right += ((guess == wanted) & (wanted != PAD)).sum().item()
        seen += (wanted != PAD).sum().item()
    model.train()
    return right / seen


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--width", type=int, default=128)
    args = cli.parse_args()
    torch.manual_seed(8)

    loader = DataLoader(Tablets(1200, seed=3), 8, shuffle=True, collate_fn=collate, drop_last=True)
    held_out = DataLoader(Tablets(32, seed=4), 16, collate_fn=collate)
    model = Reader(args.width, early_keys=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step, running = 0, []
    while step < args.steps:
        for signs, words in loader:
            loss = word_loss(model(signs, words[:, :-1]), words[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running.append(loss.item())
            step += 1
            if step % 50 == 0 or step == args.steps:
                print(f"step {step} loss {np.mean(running):.3f} held-out accuracy {evaluate(model, held_out):.3f}")
                running.clear()
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
