"""A full checkpoint every five steps.

expects: CA603
needs: either
"""
# mypy: ignore-errors

import argparse
from pathlib import Path

import torch
from torch import nn


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)  # guilty


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    model = nn.Sequential(nn.Embedding(20_000, 64), nn.Flatten(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 50))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    every = 60 if args.fixed else 5
    for step in range(1, args.steps + 1):
        ids = torch.randint(0, 20_000, (64, 8), device=device)
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 50)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            save(folder / "last.pt", model, optimizer, step)  # guilty


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
