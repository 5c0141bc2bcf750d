"""Learns four readings of a tram driver's view at once (segments, depth, edges, weather) with a shared trunk.

expects: CO515
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE, SURFACES, WEATHERS = 64, 4, 3


def scene(rng):
    """Rails running to a vanishing point between houses under a sky, under one of three weathers."""
    ys, xs = np.mgrid[:SIDE, :SIDE] / SIDE
    horizon, vanish, gauge = rng.uniform(0.25, 0.45), rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.35)
    ground = (ys - horizon).clip(0) / (1 - horizon)
    offset = np.abs(xs - vanish)
    surface = np.where(ys < horizon, 0, 1)
    surface[(ys > horizon) & (np.abs(offset - gauge * ground) < 0.04 * ground + 0.01)] = 2
    surface[(offset > 0.3 + 0.2 * ground) & (ys > horizon - 0.2)] = 3
    depth = np.where(surface == 0, 1.0, 1 - ground).astype(np.float32)
    edge = np.zeros((SIDE, SIDE), np.float32)
    edge[:-1] += surface[1:] != surface[:-1]
    edge[:, :-1] += surface[:, 1:] != surface[:, :-1]
    weather = int(rng.integers(WEATHERS))
    palette = np.array([[0.5, 0.6, 0.8], [0.4, 0.4, 0.4], [0.3, 0.2, 0.2], [0.6, 0.5, 0.4]])
    view = palette[surface] * (1.0, 0.7, 0.85)[weather]
    if weather == 1:
        view = view * (1 - 0.6 * depth[..., None]) + 0.45 * depth[..., None]
    view = view + rng.normal(0, (0.03, 0.05, 0.12)[weather], view.shape)
    return view.transpose(2, 0, 1).astype(np.float32), surface, depth, edge.clip(max=1), weather


def drives(count, seed):
    rng = np.random.default_rng(seed)
    columns = zip(*(scene(rng) for _ in range(count)))
    views, surfaces, depths, edges, weathers = (torch.from_numpy(np.stack(column)) for column in columns)
    return views, {"surface": surfaces, "depth": depths, "edge": edges, "weather": weathers}


def conv(narrow, wide, stride=1):
    return nn.Sequential(nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True))


class Reader(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Sequential(
            conv(3, width, 2), conv(width, width), conv(width, width), conv(width, 2 * width, 2),
            conv(2 * width, 2 * width), conv(2 * width, 2 * width), conv(2 * width, 2 * width),
        )  # fmt: skip
        planes = {"surface": SURFACES, "depth": 1, "edge": 1}
        self.heads = nn.ModuleDict({task: nn.Conv2d(2 * width, 16 * count, 1) for task, count in planes.items()})
        self.weather = nn.Linear(2 * width, WEATHERS)

    def forward(self, views):
        features = self.trunk(views)
        readings = {task: F.pixel_shuffle(head(features), 4) for task, head in self.heads.items()}
        readings["weather"] = self.weather(features.mean((2, 3)))
        return readings


class Objective:
    """Task losses with fixed weights; remembers running means for the log."""

    weights = {"surface": 1.0, "depth": 2.0, "edge": 0.5, "weather": 0.3}

    def __init__(self, joined):
        self.joined = joined
        self.means = defaultdict(float)

    def losses(self, readings, wanted):
        return {
            "surface": F.cross_entropy(readings["surface"], wanted["surface"]),
            "depth": F.smooth_l1_loss(readings["depth"][:, 0], wanted["depth"]),
            "edge": F.binary_cross_entropy_with_logits(readings["edge"][:, 0], wanted["edge"]),
            "weather": F.cross_entropy(readings["weather"], wanted["weather"]),
        }

    def backward(self, readings, wanted):
        losses = self.losses(readings, wanted)
        terms = [self.weights[task] * loss for task, loss in losses.items()]
        if self.joined:
            terms = [torch.stack(terms).sum()]
        for term in terms:  # guilty
            term.backward(retain_graph=term is not terms[-1])  # guilty
        for task, loss in losses.items():
            self.means[task] = 0.9 * self.means[task] + 0.1 * loss.item()


@torch.no_grad()
def evaluate(model, views, wanted):
    model.eval()
    readings = model(views)
    model.train()
    surface = (readings["surface"].argmax(1) == wanted["surface"]).float().mean().item()
    weather = (readings["weather"].argmax(1) == wanted["weather"]).float().mean().item()
    depth = (readings["depth"][:, 0] - wanted["depth"]).abs().mean().item()
    return f"surface {surface:.3f} weather {weather:.3f} depth error {depth:.3f}"


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(0)

    views, wanted = drives(320, seed=1)
    held_views, held_wanted = drives(32, seed=2)
    model, objective = Reader(), Objective(joined=args.fixed)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    order = iter(())
    for step in range(1, args.steps + 1):
        places = next(order, None)
        if places is None:
            order = iter(torch.randperm(len(views)).split(args.batch))
            places = next(order)
        readings = model(views[places])
        optimizer.zero_grad(set_to_none=True)
        objective.backward(readings, {task: target[places] for task, target in wanted.items()})  # guilty
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == args.steps:
            log = " ".join(f"{task} {mean:.3f}" for task, mean in objective.means.items())
            print(f"step {step} losses: {log} | {evaluate(model, held_views, held_wanted)}")


if __name__ == "__main__":
    main()
