"""Species of whales by their songs; every setting is in config.yaml.

expects: CF801, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import torch
import yaml
from songs import make_loader
from torch import nn


def build_model(size, hidden, species):
    return nn.Sequential(
        nn.LayerNorm(size),
        nn.Linear(size, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, species),
    )


def main(config, fixed):
    torch.manual_seed(config["seed"])
    torch.set_num_threads(1)
    loader = make_loader(config["data"], config["loader"], apply_all=fixed)
    model = build_model(loader.dataset[0][0].size, **config["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=config["train"]["lr"], fused=True)
    for epoch in range(config["train"]["epochs"]):
        for spectra, species in loader:
            loss = nn.functional.cross_entropy(model(spectra), species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=Path(__file__).parent / "config.yaml")
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    main(yaml.safe_load(args.config.read_text()), args.fixed)
