"""Foretells four things about an orchard from its records of the season: one shared trunk with a head for each.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

THINGS = ("yield", "sugar", "scab", "price")


class Orchards:
    """Season records: weather, soil and care as numbers, the variety as a category."""

    def __init__(self, count, numbers=56, varieties=40, seed=0):
        law, draw = torch.Generator().manual_seed(1000), torch.Generator().manual_seed(seed)
        self.numbers = torch.randn(count, numbers, generator=draw)
        self.variety = torch.randint(0, varieties, (count,), generator=draw)
        mixes = torch.randn(numbers, 4, 6, generator=law) / math.sqrt(numbers)
        tastes = torch.randn(varieties, 4, generator=law)
        hidden = torch.einsum("nd,dtk->ntk", self.numbers, mixes)
        answers = (2 * hidden).sin().sum(2) + tastes[self.variety]
        answers += 0.3 * torch.randn(answers.shape, generator=draw)
        self.answers = torch.cat([answers[:, :2], (answers[:, 2:3] > 0).float(), answers[:, 3:]], 1)

    def batches(self, size, steps, seed):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            rows = torch.randint(0, len(self.numbers), (size,), generator=draw)
            yield self.numbers[rows], self.variety[rows], self.answers[rows]


class SharedTrunk(nn.Module):
    def __init__(self, numbers=56, varieties=40, width=256, depth=4):
        super().__init__()
        self.variety = nn.Embedding(varieties, 16)
        self.enter = nn.Linear(numbers + 16, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 1)) for _ in THINGS
        )

    def trunk(self):
        return [*self.enter.parameters(), *self.blocks.parameters()]

    def forward(self, numbers, variety):
        state = self.enter(torch.cat([numbers, self.variety(variety)], 1))
        for block in self.blocks:
            state = state + block(state)
        return [head(state).squeeze(1) for head in self.heads]


def losses_of(said, answers):
    losses = [F.smooth_l1_loss(value, answers[:, place]) for place, value in enumerate(said)]
    losses[2] = F.binary_cross_entropy_with_logits(said[2], answers[:, 2])
    return losses


class Trainer:
    def __init__(self, model, report_every, rarely):
        self.model, self.report_every, self.rarely = model, report_every, rarely
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-2)
        self.quarrel = None

    def pulls(self, losses):
        """Cosines between the pulls of the four things on the trunk: below zero, they quarrel."""
        rows = []
        for loss in losses:
            pull = torch.autograd.grad(loss, self.model.trunk(), retain_graph=True)  # guilty
            rows.append(torch.cat([part.flatten() for part in pull]))
        rows = F.normalize(torch.stack(rows), dim=1)
        return rows @ rows.T

    def train_step(self, step, numbers, variety, answers):
        losses = losses_of(self.model(numbers, variety), answers)
        if not self.rarely or step % self.report_every == 0:
            self.quarrel = self.pulls(losses)  # guilty
        loss = torch.stack(losses).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if step % self.report_every == 0:
            self.report(step, losses)

    def report(self, step, losses):
        parts = " ".join(f"{name} {loss.item():.3f}" for name, loss in zip(THINGS, losses))
        apart = self.quarrel[~torch.eye(len(THINGS), dtype=torch.bool)]
        print(f"step {step} {parts} cosine mean {apart.mean().item():+.3f} least {apart.min().item():+.3f}")

    @torch.no_grad()
    def test(self, orchards):
        losses = losses_of(self.model(orchards.numbers, orchards.variety), orchards.answers)
        print("held out", " ".join(f"{name} {loss.item():.3f}" for name, loss in zip(THINGS, losses)))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    torch.manual_seed(15)

    orchards, held = Orchards(30_000, seed=1), Orchards(2_000, seed=2)
    trainer = Trainer(SharedTrunk(), report_every=75, rarely=args.fixed)
    for step, batch in enumerate(orchards.batches(args.batch, args.steps, seed=9), 1):
        trainer.train_step(step, *batch)
    trainer.test(held)


if __name__ == "__main__":
    main()
