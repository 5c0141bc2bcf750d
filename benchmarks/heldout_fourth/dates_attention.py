"""Dates in words to dates in digits: an attentive decoder that reads its own output some of the time.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import datetime
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MONTHS = [datetime.date(2000, k, 1).strftime("%B").lower() for k in range(1, 13)]
CHARS = " 0123456789abcdefghijklmnopqrstuvwxyz-,"
INDEX = {c: i + 2 for i, c in enumerate(CHARS)}
PAD, BOS, VOCAB = 0, 1, len(CHARS) + 2


def pair(rnd):
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rnd.randrange(30_000))
    name = MONTHS[day.month - 1]
    source = rnd.choice(
        [f"{day.day} {name} {day.year}", f"{name} {day.day}, {day.year}", f"{name[:3]} {day.day} {day.year}"]
    )
    return [INDEX[c] for c in source], [INDEX[c] for c in day.isoformat()]


def batch_of(pairs):
    width = max(len(s) for s, _ in pairs)
    source = torch.tensor([s + [PAD] * (width - len(s)) for s, _ in pairs])
    return source, torch.tensor([t for _, t in pairs])


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)

    def forward(self, source):
        out, h = self.rnn(self.emb(source))
        return out, torch.tanh(h.sum(0))


class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.query, self.key, self.energy = nn.Linear(dim, dim), nn.Linear(2 * dim, dim), nn.Linear(dim, 1)
        self.cell = nn.GRUCell(3 * dim, dim)
        self.out = nn.Linear(3 * dim, VOCAB)

    def step(self, token, h, memory, keys, mask):
        score = self.energy(torch.tanh(self.query(h).unsqueeze(1) + keys)).squeeze(-1)
        weights = score.masked_fill(mask, -1e9).softmax(1)
        context = (weights.unsqueeze(1) @ memory).squeeze(1)
        h = self.cell(torch.cat([self.emb(token), context], 1), h)
        return self.out(torch.cat([h, context], 1)), h

    def forward(self, target, h, memory, mask, force):
        keys = self.key(memory)
        token, logits = torch.full((len(target),), BOS), []
        for t in range(target.shape[1]):
            step, h = self.step(token, h, memory, keys, mask)
            logits.append(step)
            token = target[:, t] if random.random() < force else step.argmax(1)
        return torch.stack(logits, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--batch-size", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    rnd = random.Random(1)
    data = [pair(rnd) for _ in range(3000)]
    encoder, decoder = Encoder(96), Decoder(96)
    optimizers = [torch.optim.Adam(m.parameters(), 1e-3) for m in (encoder, decoder)]
    for step in range(1, args.steps + 1):
        source, target = batch_of(random.sample(data, args.batch_size))
        memory, h = encoder(source)
        logits = decoder(target, h, memory, source == PAD, force=max(0.5, 1 - step / 400))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        for o in optimizers:
            o.zero_grad()
        loss.backward()
        for m, o in zip((encoder, decoder), optimizers, strict=True):
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            o.step()
        if step % 30 == 0:
            right = (logits.argmax(-1) == target).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} chars {right:.3f}")


if __name__ == "__main__":
    main()
