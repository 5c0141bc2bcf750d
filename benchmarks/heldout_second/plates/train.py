"""Reads number plates; drawing them is left to a worker that keeps up.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import argparse
from pathlib import Path

import torch
import yaml
from dataset import ALPHABET, loaders
from reader import Reader
from torch.nn.functional import cross_entropy


class Training:
    def __init__(self, config: dict):
        self.config = config
        self.train, self.valid = loaders(config)
        self.model = Reader(config["channels"], config["text_length"], len(ALPHABET))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config["lr"])

    def epoch(self):
        for images, codes in self.train:
            loss = cross_entropy(self.model(images), codes)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        hits = [(self.model(images).argmax(1) == codes).float().mean() for images, codes in self.valid]
        self.model.train()
        return torch.stack(hits).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training = Training(yaml.safe_load(Path(__file__).with_name("config.yaml").read_text()))
    for epoch in range(1, max(1, args.steps // len(training.train)) + 1):
        training.epoch()
        if epoch % training.config["validate_every_epochs"] == 0:
            print(f"epoch {epoch}: {training.validate():.1%} of letters read")


if __name__ == "__main__":
    main()
