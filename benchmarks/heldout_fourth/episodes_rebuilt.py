"""Prototypical networks: a support and a query set per episode, drawn from two loaders.

expects: IN106
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WAYS, SHOTS, QUERIES = 5, 4, 6


class Glyphs(Dataset):
    """One item is one class: a stack of strokes, a few of them drawn for the episode."""

    def __init__(self, classes, per_class, take, seed):
        g = torch.Generator().manual_seed(seed)
        proto = torch.rand(classes, 1, 28, 28, generator=g)
        self.images = proto + 0.35 * torch.rand(classes, per_class, 28, 28, generator=g)
        self.take = take

    def __len__(self):
        return len(self.images)

    def __getitem__(self, c):
        pick = torch.randperm(self.images.shape[1])[: self.take]
        return self.images[c, pick].unsqueeze(1)


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


class ProtoNet(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.encoder = nn.Sequential(
            conv_block(1, hidden), conv_block(hidden, hidden), conv_block(hidden, hidden), nn.Flatten()
        )

    def forward(self, support, query):
        ways, shots = support.shape[:2]
        z = self.encoder(torch.cat([support.flatten(0, 1), query.flatten(0, 1)]))
        proto = z[: ways * shots].view(ways, shots, -1).mean(1)
        dist = torch.cdist(z[ways * shots :], proto) ** 2
        target = torch.arange(ways).repeat_interleave(query.shape[1])
        return F.cross_entropy(-dist, target), (dist.argmin(1) == target).float().mean()


class EpisodeStream:
    def __init__(self, dataset, workers, keep):
        self.dataset, self.workers, self.keep = dataset, workers, keep
        self.iterator = None

    def make(self):
        return iter(DataLoader(self.dataset, WAYS, shuffle=True, drop_last=True, num_workers=self.workers))  # guilty

    def draw(self):
        if not self.keep:
            return next(self.make())  # guilty
        if self.iterator is None:
            self.iterator = self.make()
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = self.make()
            return next(self.iterator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--num-workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(3)

    stream = EpisodeStream(Glyphs(1200, 20, SHOTS + QUERIES, 0), args.num_workers, keep=args.fixed)
    model = ProtoNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)
    history = []
    for episode in range(1, args.steps + 1):
        batch = stream.draw()  # guilty
        loss, acc = model(batch[:, :SHOTS], batch[:, SHOTS:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        history.append(acc.item())
        if episode % 50 == 0:
            print(f"episode {episode}: loss {loss.item():.3f} acc {sum(history[-50:]) / 50:.3f}")


if __name__ == "__main__":
    main()
