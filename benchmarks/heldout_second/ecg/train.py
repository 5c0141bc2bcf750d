"""Classifies heart rhythms with a module and an engine in separate files.

expects: IN109
needs: cpu
"""

# mypy: ignore-errors

import argparse

import torch
from engine import Engine
from rhythm import RhythmClassifier
from signals import Beats
from torch.utils.data import DataLoader


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(2)
    loader = DataLoader(
        Beats(cleaned=args.fixed), args.batch_size, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True
    )
    Engine(args.steps).fit(RhythmClassifier(cleans=not args.fixed), loader)


if __name__ == "__main__":
    main()
