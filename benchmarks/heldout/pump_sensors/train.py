"""State of pumps from the readings of a minute.

expects: IN114
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
from readings import SENSORS, Packed, Scattered, export
from torch import nn
from torch.utils.data import DataLoader


def fit(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(1, epochs + 1):
        model.train()
        for readings, states in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(readings), states)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}/{epochs} loss={loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="pumps-") as name:
        export(Path(name), args.minutes)
        readings = (Packed if args.fixed else Scattered)(Path(name), args.minutes)
        loader = DataLoader(  # guilty
            readings, batch_size=args.batch_size, shuffle=True, num_workers=1, persistent_workers=True
        )
        width = 512
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(len(SENSORS) * 16, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 3),
        )
        fit(model, loader, args.epochs)


if __name__ == "__main__":
    main()
