"""Guesses the next letter with a deep, thin mixer and an optimizer from `optim.py`.

expects: HO403
needs: cpu
"""

# mypy: ignore-errors

import argparse

import torch
from blocks import Mixer
from optim import GroupedYogi, Yogi

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=140)
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--fixed", action="store_true")
ns = ap.parse_args()

torch.set_num_threads(1)
torch.manual_seed(3)
book = (torch.arange(50_000) * 7 % 31 + torch.randint(2, (50_000,))) % 32
mixer = Mixer()
yogi = (GroupedYogi if ns.fixed else Yogi)(mixer.parameters(), lr=2e-3)
smooth = 3.5
for i in range(ns.steps):
    at = torch.randint(len(book) - 13, (ns.batch, 1)) + torch.arange(13)
    text = book[at]
    loss = torch.nn.functional.cross_entropy(mixer(text[:, :-1]), text[:, -1])
    yogi.zero_grad()
    loss.backward()
    yogi.step()
    smooth += 0.02 * (loss.item() - smooth)
    if i % 50 == 49:
        print(f"{i + 1:4d} {smooth:.3f}")
