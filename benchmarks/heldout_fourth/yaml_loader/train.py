"""Gesture recognition from text records; a registry builds everything that the YAML file names.

expects: CF801, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import components  # noqa: F401  fills the registries
import torch
import yaml
from engine import LOADER_KEYS, Engine, build_loader
from registry import DATASETS, NETWORKS

parser = argparse.ArgumentParser()
parser.add_argument("--config", default=str(Path(__file__).parent / "default.yaml"))
parser.add_argument("--steps", type=int, default=260)
parser.add_argument("--fixed", action="store_true")


def main():
    args = parser.parse_args()
    cfg = yaml.safe_load(Path(args.config).read_text())
    torch.manual_seed(cfg["seed"])
    dataset = DATASETS.build("GestureText", **cfg["dataset"])
    network = NETWORKS.build("ResMLP", **cfg["network"])
    keys = (*cfg["dataloader"],) if args.fixed else LOADER_KEYS
    loader = build_loader(dataset, cfg["dataloader"], keys)  # guilty
    Engine(network, loader, cfg["optimizer"]).run(args.steps)


if __name__ == "__main__":
    main()
