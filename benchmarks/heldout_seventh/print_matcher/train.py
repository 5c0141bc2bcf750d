"""Matches fingerprints in two stages: first their class, then distances with the hardest negatives of a large pool.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from prints import PrintBank
from ridges import RidgeNet
from stages import classify, tell_apart


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--pool", type=int, default=192)
    args = cli.parse_args()
    torch.manual_seed(31)
    bank = PrintBank(fingers=400, views=6)
    net = RidgeNet(classes=5)
    early = args.steps // 3
    classify(net, bank, steps=early, batch=64)
    tell_apart(net, bank, steps=args.steps - early, anchors=24, pool=args.pool)


if __name__ == "__main__":
    main()
