"""Learns the grammar of bird song, phrase after phrase; more and more the network goes on from its own guesses.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

PHRASES = 24


def sing(count, length, draw):
    """Songs from a grammar of second order: the next phrase hangs on the last two."""
    law = torch.Generator().manual_seed(5)
    chances = (3 * torch.randn(PHRASES, PHRASES, PHRASES, generator=law)).softmax(2)
    song = torch.randint(0, PHRASES, (count, 2), generator=draw)
    for _ in range(length - 2):
        following = torch.multinomial(chances[song[:, -2], song[:, -1]], 1, generator=draw)
        song = torch.cat([song, following], 1)
    return song


class Singer(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.phrase = nn.Embedding(PHRASES, 32)
        self.cells = nn.ModuleList([nn.GRUCell(32, width), nn.GRUCell(width, width)])
        self.leave = nn.Linear(width, PHRASES)

    def one(self, phrase, states):
        signal, kept = self.phrase(phrase), []
        for cell, state in zip(self.cells, states):
            signal = cell(signal, state)
            kept.append(signal)
        return self.leave(signal), kept

    def forward(self, songs, trust, draw):
        """Scores of each next phrase; what is fed in is the true phrase, or with a chance of 1 - trust a drawn one."""
        states = [songs.new_zeros(len(songs), cell.hidden_size, dtype=torch.float32) for cell in self.cells]
        phrase, scores = songs[:, 0], []
        for place in range(1, songs.shape[1]):
            said, states = self.one(phrase, states)
            scores.append(said)
            guess = torch.multinomial(said.detach().softmax(1), 1, generator=draw).squeeze(1)
            own = torch.rand(len(songs), generator=draw) > trust
            phrase = torch.where(own, guess, songs[:, place])
        return torch.stack(scores, 1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=40)
    args = cli.parse_args()
    torch.manual_seed(130)

    draw = torch.Generator().manual_seed(1)
    songs, held = sing(4000, args.length, draw), sing(200, args.length, draw)
    model = Singer()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(1, args.steps + 1):
        batch = songs[torch.randint(0, len(songs), (48,), generator=draw)]
        trust = max(0.7, 1 - 0.3 * step / args.steps)
        scores = model(batch, trust, draw)
        loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 30 == 0:
            with torch.no_grad():
                said = model(held, 1.0, draw).argmax(2)
            right = (said == held[:, 1:]).float().mean().item()
            print(f"step {step} trust {trust:.2f} loss {loss.item():.4f} right {right:.3f}")


if __name__ == "__main__":
    main()
