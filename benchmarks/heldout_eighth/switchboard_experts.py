"""A language model of switchboard calls whose feed-forward layers are experts; a router sends each letter to one.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

LETTERS, SPAN = 48, 96


def calls(length, order=2):
    """Letters from a sparse chain of second order, with a change of speaker now and then."""
    table = torch.randint(2, LETTERS, (2, LETTERS, LETTERS, 4))
    said, speaker, a, b = [], 0, 2, 3
    picks = torch.randint(4, (length,)).tolist()
    turns = (torch.rand(length) < 0.02).tolist()
    rows = table.tolist()
    for pick, turn in zip(picks, turns):
        speaker = 1 - speaker if turn else speaker
        a, b = b, speaker if turn else rows[speaker][a][b][pick]
        said.append(b)
    return torch.tensor(said)


class Experts(nn.Module):
    def __init__(self, width, experts, growth=3):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, growth * width), nn.GELU(), nn.Linear(growth * width, width))
            for _ in range(experts)
        )

    def forward(self, hidden):
        flat = hidden.flatten(0, 1)
        chances = self.router(flat).softmax(1)
        gate, chosen = chances.max(1)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows = torch.where(chosen == index)[0]
            if len(rows):
                out = out.index_add(0, rows, expert(flat[rows]) * gate[rows, None])
        share = F.one_hot(chosen, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * chances.mean(0)).sum()
        return out.view_as(hidden), balance


class Block(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(width, experts)

    def forward(self, hidden):
        batch, span, width = hidden.shape
        parts = self.mix(self.before(hidden)).view(batch, span, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        hidden = hidden + self.join(seen.transpose(1, 2).reshape(batch, span, width))
        out, balance = self.experts(self.after(hidden))
        return hidden + out, balance


class CallModel(nn.Module):
    def __init__(self, width=96, depth=3, heads=4, experts=6):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Parameter(0.02 * torch.randn(SPAN, width))
        self.blocks = nn.ModuleList(Block(width, heads, experts) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, letters):
        hidden, balance = self.letters(letters) + self.places, 0.0
        for block in self.blocks:
            hidden, uneven = block(hidden)
            balance = balance + uneven
        return self.out(self.norm(hidden)), balance


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(43)
    said = calls(60_000)
    windows = said.unfold(0, SPAN + 1, 1)
    net = CallModel()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        rows = windows[torch.randint(len(windows), (args.batch,))]
        logits, balance = net(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        (loss + 0.01 * balance).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f} balance {float(balance) / 3:.3f}")


if __name__ == "__main__":
    main()
