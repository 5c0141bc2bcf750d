"""Captions for feature grids, trained by REINFORCE with a greedy baseline on sampled captions.

expects: other, HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, BOS, LENGTH = 120, 0, 16


class Captioner(nn.Module):
    def __init__(self, feat=32, dim=96):
        super().__init__()
        self.visual = nn.Linear(feat, dim)
        self.words = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(2 * dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def start(self, grid):
        v = torch.tanh(self.visual(grid)).mean(1)
        return v, v.unsqueeze(0).contiguous()

    def forward(self, v, h, words):
        x = torch.cat([self.words(words), v.unsqueeze(1).expand(-1, words.shape[1], -1)], 2)
        y, h = self.rnn(x, h)
        return self.out(y), h


def pick(logits, greedy, generator):
    if greedy:
        return logits.argmax(-1)
    return torch.multinomial(F.softmax(logits.detach(), -1), 1, generator=generator).squeeze(1)


def decode(model, grid, greedy, generator):
    """Words so far go in, the next word comes out."""
    v, h0 = model.start(grid)
    words = torch.full((len(grid), 1), BOS)
    logps = []
    for _ in range(LENGTH):
        logits, _ = model(v, h0, words)  # guilty
        last = logits[:, -1]  # guilty
        nxt = pick(last, greedy, generator)
        logps.append(F.log_softmax(last, -1).gather(1, nxt.unsqueeze(1)))
        words = torch.cat([words, nxt.unsqueeze(1)], 1)
    return words[:, 1:], torch.cat(logps, 1)


def decode_with_state(model, grid, greedy, generator):
    v, h = model.start(grid)
    word, words, logps = torch.full((len(grid), 1), BOS), [], []
    for _ in range(LENGTH):
        logits, h = model(v, h, word)
        nxt = pick(logits[:, -1], greedy, generator)
        logps.append(F.log_softmax(logits[:, -1], -1).gather(1, nxt.unsqueeze(1)))
        word = nxt.unsqueeze(1)
        words.append(nxt)
    return torch.stack(words, 1), torch.cat(logps, 1)


def reward(words, reference):
    """The share of the caption's words that the reference has, and a bonus for the right place."""
    found = (words.unsqueeze(2) == reference.unsqueeze(1)).any(2).float().mean(1)
    return found + 0.5 * (words == reference).float().mean(1)


def scenes(n, generator):
    kind = torch.randint(0, 10, (n,), generator=generator)
    grid = torch.randn(n, 9, 32, generator=generator) * 0.3 + F.one_hot(kind, 32).unsqueeze(1)
    return grid, (kind.unsqueeze(1) * 11 + torch.arange(LENGTH)) % (VOCAB - 1) + 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(2)
    model = Captioner()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    sampler = decode_with_state if args.fixed else decode
    for step in range(1, args.steps + 1):
        grid, reference = scenes(args.batch, g)
        with torch.no_grad():
            baseline = reward(sampler(model, grid, True, g)[0], reference)  # guilty
        words, logp = sampler(model, grid, False, g)  # guilty
        advantage = reward(words, reference) - baseline
        loss = -(advantage.unsqueeze(1) * logp).mean() - 0.001 * (-logp).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"{step} reward {baseline.mean():.3f} advantage {advantage.mean():+.3f}")
