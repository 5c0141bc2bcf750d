"""Traffic on a road network: an endless stream of readings, graph convolutions, a line in a log now and then.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import csv
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

JUNCTIONS = 80


def road_network(seed):
    generator = torch.Generator().manual_seed(seed)
    roads = (torch.rand(JUNCTIONS, JUNCTIONS, generator=generator) < 0.08).float()
    roads = ((roads + roads.T + torch.eye(JUNCTIONS)) > 0).float()
    return roads / roads.sum(1, keepdim=True)


class Readings(IterableDataset):
    """Whole batches of past and following readings."""

    def __init__(self, roads, batch=24, hours=12):
        self.roads, self.batch, self.hours = roads, batch, hours

    def __iter__(self):
        generator = torch.Generator().manual_seed(75)
        while True:
            flow = torch.rand(self.batch, JUNCTIONS, 1, generator=generator)
            past = flow * torch.rand(1, 1, self.hours, generator=generator)
            yield past, self.roads @ past[..., -1:]


class RoadNet(nn.Module):
    def __init__(self, roads, hours=12, width=128):
        super().__init__()
        self.register_buffer("roads", roads)
        self.first = nn.Linear(hours, width)
        self.hops = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for hop in self.hops:
            x = torch.relu(hop(self.roads @ x)) + x
        return self.last(x)


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=260)
    args = parser.parse_args(argv)
    torch.manual_seed(75)
    torch.set_num_threads(1)
    roads = road_network(75)
    stream = iter(DataLoader(Readings(roads), batch_size=None))
    model = RoadNet(roads)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    log = csv.writer(sys.stdout)
    step = 0
    while step < args.steps:
        past, following = next(stream)
        loss = nn.functional.l1_loss(model(past), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 40 == 0:
            log.writerow([step, f"{loss.item():.5f}"])


if __name__ == "__main__":
    main(sys.argv[1:])
