"""Two networks against each other, an optimizer each.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse
from itertools import pairwise

import torch
from torch import nn


def mlp(*widths):
    layers = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class Duel:
    def __init__(self):
        self.maker, self.judge = mlp(32, 512, 512, 64), mlp(64, 512, 512, 1)
        self.maker_optimizer = torch.optim.Adam(self.maker.parameters(), 2e-4)
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters(), 2e-4)
        self.loss = nn.BCEWithLogitsLoss()

    def round(self, real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = self.maker(torch.randn(len(real), 32))
        self.judge_optimizer.zero_grad()
        (self.loss(self.judge(real), ones) + self.loss(self.judge(fake.detach()), zeros)).backward()
        self.judge_optimizer.step()
        self.maker_optimizer.zero_grad()
        self.loss(self.judge(fake), ones).backward()
        self.maker_optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    duel = Duel()
    for _ in range(args.steps):
        duel.round(torch.randn(128, 64))
