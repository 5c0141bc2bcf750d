"""A leaf classifier on a compressed archive of pictures, with a small engine and its settings in a YAML file.

expects: CF801, IN105
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
import yaml
from data import LeafArchive, build_loader, write_archive
from engine import Engine, LeafNet


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--config", default=str(Path(__file__).with_name("config.yaml")))
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    cfg = yaml.safe_load(Path(args.config).read_text())
    torch.manual_seed(cfg["run"]["seed"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaves.npz"
        write_archive(path, 800, cfg["model"]["classes"], cfg["run"]["seed"])
        dataset = LeafArchive(path, fold=192)
        loader = build_loader(dataset, cfg["loader"], cfg["run"]["seed"], args.fixed)
        model = LeafNet(cfg["model"]["width"], cfg["model"]["classes"])
        engine = Engine(model, loader, cfg["run"])
        engine.fit(args.steps)
        print(f"done after {engine.step} steps")


if __name__ == "__main__":
    main()
