"""An LSTM that continues melodies: pitch, length, loudness and chord of the next note from one shared state.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn

SIZES = {"pitch": 64, "length": 8, "loudness": 12, "chord": 24}
VOICES = 8


class MelodyModel(nn.Module):
    def __init__(self, dim=24, hidden=96):
        super().__init__()
        self.embed = nn.ModuleDict({k: nn.Embedding(n, dim) for k, n in SIZES.items()})
        self.trunk = nn.LSTM(dim * len(SIZES), hidden)
        self.heads = nn.ModuleDict({k: nn.Linear(hidden, n) for k, n in SIZES.items()})

    def forward(self, notes, state):
        x = torch.cat([self.embed[k](notes[k]) for k in SIZES], -1)
        h, state = self.trunk(x, state)
        return {k: head(h) for k, head in self.heads.items()}, state


def compose(length):
    g = torch.Generator().manual_seed(80)
    walk = torch.randint(-2, 3, (length, VOICES), generator=g).cumsum(0)
    return {k: (walk // (i + 1) + torch.arange(VOICES)) % n for i, (k, n) in enumerate(SIZES.items())}


class Session:
    """Goes through the score piece by piece, the state carried along."""

    def __init__(self, model, fixed):
        self.model, self.fixed, self.state = model, fixed, None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def piece(self, notes, targets):
        logits, state = self.model(notes, self.state)
        losses = [nn.functional.cross_entropy(logits[k].flatten(0, 1), targets[k].flatten()) for k in SIZES]
        self.optimizer.zero_grad()
        if self.fixed:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)  # guilty
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.state = tuple(s.detach() for s in state)
        return losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--piece", type=int, default=24)
    args = ap.parse_args()
    torch.manual_seed(1)
    score = compose(args.steps * args.piece + 1)
    session = Session(MelodyModel(), args.fixed)
    for step in range(args.steps):
        at = step * args.piece
        notes = {k: v[at : at + args.piece] for k, v in score.items()}
        targets = {k: v[at + 1 : at + args.piece + 1] for k, v in score.items()}
        losses = session.piece(notes, targets)  # guilty
        if step % 50 == 0:
            print(step, *(f"{k} {loss.item():.3f}" for k, loss in zip(SIZES, losses, strict=True)))


if __name__ == "__main__":
    main()
