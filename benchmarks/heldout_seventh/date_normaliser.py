"""A character decoder with attention that rewrites dates in many notations as ISO dates.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import datetime
import random

import torch
import torch.nn.functional as F
from torch import nn

FORMATS = ("%d %B %Y", "%B %d, %Y", "%A, %d %b %Y", "%d.%m.%Y", "%m/%d/%Y", "%a %d %B '%y", "the %d. of %B %Y")
ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789.,/'-"
CODE = {letter: number + 1 for number, letter in enumerate(ALPHABET)}
START, ANSWER, WIDEST, LETTERS = 0, 10, 28, len(ALPHABET) + 1


def encode(text, length):
    return [CODE[letter] for letter in text.lower()] + [0] * (length - len(text))


def make_pairs(count, seed):
    rng = random.Random(seed)
    written, answers = [], []
    for _ in range(count):
        day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(30_000))
        written.append(encode(day.strftime(rng.choice(FORMATS)), WIDEST))
        answers.append(encode(day.isoformat(), ANSWER))
    return torch.tensor(written), torch.tensor(answers)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, state, keys, values, hidden_mask):
        energy = self.score(torch.tanh(keys + self.query(state)[:, None])).squeeze(2)
        share = energy.masked_fill(hidden_mask, -1e4).softmax(1)
        return torch.bmm(share[:, None], values).squeeze(1)


class Normaliser(nn.Module):
    def __init__(self, width=192, letters=LETTERS):
        super().__init__()
        self.letters = nn.Embedding(letters, width // 2)
        self.encoder = nn.GRU(width // 2, width // 2, batch_first=True, bidirectional=True)
        self.keys = nn.Linear(width, width)
        self.attention = Attention(width)
        self.cell = nn.LSTMCell(width // 2 + width, width)
        self.out = nn.Linear(2 * width, letters)
        self.width = width

    def forward(self, written, answer, own_share):
        """own_share: how often a letter of the model's own goes in, instead of the right one."""
        batch, length = answer.shape
        values, _ = self.encoder(self.letters(written))
        keys, hidden_mask = self.keys(values), written == 0
        h = c = torch.zeros(batch, self.width)
        previous = torch.full((batch,), START)
        logits = []
        for position in range(length):
            context = self.attention(h, keys, values, hidden_mask)
            h, c = self.cell(torch.cat([self.letters(previous), context], 1), (h, c))
            logits.append(self.out(torch.cat([h, context], 1)))
            own = torch.rand(batch) < own_share
            previous = torch.where(own, logits[-1].detach().argmax(1), answer[:, position])
        return torch.stack(logits, 1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=64)
    cli.add_argument("--most-own", type=float, default=0.5)
    args = cli.parse_args()
    torch.manual_seed(61)

    written, answers = make_pairs(20_000, 67)
    model = Normaliser()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(written), (args.batch_size,))
        own_share = args.most_own * min(1.0, step / 500)
        logits = model(written[rows], answers[rows], own_share)
        loss = F.cross_entropy(logits.flatten(0, 1), answers[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        if step % 30 == 0:
            right = (logits.argmax(2) == answers[rows]).all(1).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} right {right:.2f}")


if __name__ == "__main__":
    main()
