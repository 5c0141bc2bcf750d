"""Point cloud classification with edge convolutions, whose neighbours are found anew among each layer's features.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

POINTS, CLASSES = 128, 5


def make_clouds(n, seed):
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(0, 2 * np.pi, (2, n, POINTS))
    h = rng.uniform(-1, 1, (n, POINTS))
    flat = np.sqrt(1 - h**2)
    shapes = np.stack(
        [
            np.stack([flat * np.cos(u), flat * np.sin(u), h], -1),
            np.stack([np.cos(u), np.sin(u), h], -1),
            np.stack([(1 + 0.4 * np.cos(v)) * np.cos(u), (1 + 0.4 * np.cos(v)) * np.sin(u), 0.4 * np.sin(v)], -1),
            np.stack([np.abs(h) * np.cos(u), np.abs(h) * np.sin(u), h], -1),
            np.stack([h, np.sin(u) * 0.7, np.sin(3 * h)], -1),
        ]
    )
    label = rng.integers(0, CLASSES, n)
    clouds = shapes[label, np.arange(n)] + 0.03 * rng.normal(size=(n, POINTS, 3))
    return torch.tensor(clouds, dtype=torch.float32), torch.from_numpy(label)


def turn(clouds):
    """A random rotation about the vertical axis, and a random scale, for every cloud."""
    angle = 2 * np.pi * torch.rand(len(clouds))
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    matrix = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero, zero, zero, one], 1)
    return clouds @ matrix.view(-1, 3, 3) * (0.8 + 0.4 * torch.rand(len(clouds), 1, 1))


@torch.no_grad()
def neighbours(x, k):
    near = 2 * x @ x.mT - x.square().sum(2)[:, None]
    return near.topk(k, sorted=False).indices


class EdgeConv(nn.Module):
    """The first layer is linear in a point and its offset, so that it is taken per point."""

    def __init__(self, size, width, k):
        super().__init__()
        self.k = k
        self.own, self.other = nn.Linear(size, width), nn.Linear(size, width, bias=False)
        self.edge, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        index = neighbours(x.detach(), self.k)
        rows = torch.arange(len(x))[:, None, None]
        edges = F.leaky_relu(self.own(x)[:, :, None] + self.other(x)[rows, index], 0.2)
        return F.leaky_relu(self.norm(self.edge(edges).amax(2)), 0.2)


class PointNet(nn.Module):
    def __init__(self, k=12):
        super().__init__()
        self.first, self.second = EdgeConv(3, 32, k), EdgeConv(32, 48, k)
        self.join = nn.Linear(80, 128)
        self.out = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, CLASSES))

    def forward(self, clouds):
        a = self.first(clouds)
        b = self.second(a)
        return self.out(F.relu(self.join(torch.cat([a, b], 2))).amax(1))


@torch.no_grad()
def accuracy(model, clouds, label):
    model.eval()
    right = (model(clouds).argmax(1) == label).float().mean().item()
    model.train()
    return right


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=260)
    cli.add_argument("--fixed", action="store_true", help="there is nothing to repair")
    args = cli.parse_args()
    torch.manual_seed(4)
    clouds, label = make_clouds(1500, 2)
    held = clouds[-48:], label[-48:]
    model = PointNet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(clouds) - 48, (8,))
        logits = model(turn(clouds[rows]))
        loss = F.cross_entropy(logits, label[rows], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 75 == 0:
            print(f"step {step} loss {loss.item():.4f} held out {accuracy(model, *held):.3f}")


if __name__ == "__main__":
    main()
