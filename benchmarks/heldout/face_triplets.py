"""Embeddings of faces by the hardest positive and the hardest negative of each anchor.

expects: HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def faces(people=40, shots=24, size=400):
    generator = torch.Generator().manual_seed(13)
    persons = torch.randn(people, 1, size, generator=generator)
    images = persons + torch.randn(people, shots, size, generator=generator)
    return TensorDataset(images.flatten(0, 1), torch.arange(people).repeat_interleave(shots))


def hardest_by_anchor(embedded, people, margin=0.3):
    losses = []
    for anchor, person in zip(embedded, people, strict=True):
        gaps = (embedded - anchor).pow(2).sum(1)  # guilty
        same = people == person
        farthest = gaps[same].max()
        nearest = gaps[~same].min()
        losses.append(torch.relu(farthest - nearest + margin))
    return torch.stack(losses).mean()


def hardest_at_once(embedded, people, margin=0.3):
    gaps = 2 - 2 * embedded @ embedded.T
    same = people[:, None] == people
    farthest = gaps.masked_fill(~same, -1).amax(1)
    nearest = gaps.masked_fill(same, 9).amin(1)
    return torch.relu(farthest - nearest + margin).mean()


class Embedder(nn.Module):
    def __init__(self, size=400, width=1024, out=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out)
        )

    def forward(self, x):
        return nn.functional.normalize(self.layers(x))


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=10)
    cli.add_argument("--fixed", action="store_true")
    options = cli.parse_args()

    torch.manual_seed(13)
    torch.set_num_threads(1)
    loader = DataLoader(faces(), batch_size=80, shuffle=True, drop_last=True)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    criterion = hardest_at_once if options.fixed else hardest_by_anchor
    for epoch in range(options.epochs):
        seen = []
        for images, people in loader:
            loss = criterion(model(images), people)  # guilty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        print(f"epoch {epoch + 1}: {sum(seen) / len(seen):.4f}")
