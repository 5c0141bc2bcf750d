"""Trains a toy translator; `config.json` says how it is trained and judged.

expects: CA602
needs: cpu
"""

# mypy: ignore-errors

import argparse
import json
from pathlib import Path

import torch
from corpus import Corpus
from seq2seq import Translator
from torch.nn.functional import cross_entropy


@torch.no_grad()
def judge(model, loader):
    model.eval()
    right = total = 0
    for source, target in loader:
        guess = model(source, target).argmax(-1)
        right += int((guess == target).sum())
        total += target.numel()
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    config = json.loads((Path(__file__).parent / "config.json").read_text())
    if args.fixed:
        config["dev"]["batch_size"] = 80
    torch.set_num_threads(1)
    torch.manual_seed(config["length"])

    corpus = Corpus(config)
    train, dev = corpus.train_loader(), corpus.dev_loader()
    model = Translator(config["vocabulary"], config["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    step = 0
    while step < args.steps:
        for source, target in train:
            loss = cross_entropy(model(source, target).flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % config["dev_every"] == 0:
                print(f"{step}: loss {loss.item():.3f}, {judge(model, dev):.1%} of words right")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
