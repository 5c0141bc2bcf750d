"""A surrogate for water networks: message passing over pipes predicts the pressure at every junction.

expects: CO516
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn


class Network:
    """One town: junctions on a map, pipes between the nearest, and the pressures of a linearised solve."""

    def __init__(self, junctions, rng):
        place = rng.uniform(0, 1, (junctions, 2))
        far = np.linalg.norm(place[:, None] - place, axis=-1) + np.eye(junctions) * 9
        near = np.argsort(far, axis=1)[:, :4]
        start = np.repeat(np.arange(junctions), 4)
        end = near.ravel()
        self.pipes = np.stack([np.concatenate([start, end]), np.concatenate([end, start])])
        width = rng.uniform(0.3, 1.0, len(start))
        length = far[start, end]
        conduct = np.tile(width**2 / (length + 0.02), 2)
        demand = rng.gamma(2.0, 0.5, junctions)
        laplacian = np.zeros((junctions, junctions))
        np.add.at(laplacian, (self.pipes[0], self.pipes[0]), conduct)
        np.add.at(laplacian, (self.pipes[0], self.pipes[1]), -conduct)
        tank = np.zeros(junctions)
        tank[rng.choice(junctions, 3, replace=False)] = 50.0
        self.junctions = np.concatenate([place, demand[:, None], tank[:, None] / 50], 1)
        self.features = np.stack([np.tile(width, 2), np.tile(length, 2), conduct / 50], 1)
        pressure = np.linalg.solve(laplacian + np.diag(tank + 1e-3), tank - 0.05 * demand)
        self.pressure = (pressure - pressure.mean()) / (pressure.std() + 1e-9)


def join(networks):
    """Several towns as one graph without pipes between them."""
    offsets = np.cumsum([0] + [len(network.junctions) for network in networks[:-1]])
    pipes = np.concatenate([network.pipes + offset for network, offset in zip(networks, offsets)], 1)
    junctions = torch.from_numpy(np.concatenate([network.junctions for network in networks]))  # guilty
    features = torch.from_numpy(np.concatenate([network.features for network in networks]))  # guilty
    pressure = torch.from_numpy(np.concatenate([network.pressure for network in networks]))
    return torch.from_numpy(pipes), junctions, features, pressure


def mlp(inside, width, outside):
    return nn.Sequential(nn.Linear(inside, width), nn.SiLU(), nn.Linear(width, outside))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message, self.update = mlp(3 * width, width, width), mlp(2 * width, width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, edges, pipes):
        start, end = pipes
        edges = edges + self.message(torch.cat([nodes[start], nodes[end], edges], 1))
        inbox = torch.zeros_like(nodes).index_add_(0, end, edges)
        return nodes + self.norm(self.update(torch.cat([nodes, inbox], 1))), edges


class Surrogate(nn.Module):
    def __init__(self, width=96, layers=4):
        super().__init__()
        self.node, self.edge = mlp(4, width, width), mlp(3, width, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.out = mlp(width, width, 1)

    def forward(self, pipes, junctions, features):
        nodes, edges = self.node(junctions), self.edge(features)
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, pipes)
        return self.out(nodes).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--towns", type=int, default=4)
    args = cli.parse_args()
    torch.manual_seed(19)
    rng = np.random.default_rng(19)
    towns = [Network(120, rng) for _ in range(48)]
    graphs = [join([towns[i] for i in rng.permutation(48)[: args.towns]]) for _ in range(24)]
    if args.fixed:
        graphs = [(pipes, *(part.float() for part in parts)) for pipes, *parts in graphs]
    model = Surrogate()
    if not args.fixed:
        model = model.double()  # guilty
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    for step in range(1, args.steps + 1):
        pipes, junctions, features, pressure = graphs[step % len(graphs)]
        error = model(pipes, junctions, features) - pressure
        loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm.step()
        if step % 15 == 0:
            print(f"step {step} error {loss.item():.4f}")


if __name__ == "__main__":
    main()
