"""Classifies machine parts from laser-scanned point clouds with a PointNet; clouds are prepared by a process pool.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import multiprocessing

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SHAPES = ("shaft", "washer", "plate", "ball", "elbow", "cone")


def surface(shape, count, rng):
    """Points on the surface of one part in its own frame."""
    turn, along = rng.uniform(0, 2 * np.pi, count), rng.uniform(-1, 1, count)
    circle = np.stack([np.cos(turn), np.sin(turn)], 1)
    if shape == "shaft":
        return np.column_stack([0.3 * circle, along])
    if shape == "washer":
        return np.column_stack([circle * rng.uniform(0.5, 1, (count, 1)), 0.05 * np.sign(along)])
    if shape == "plate":
        return np.column_stack([rng.uniform(-1, 1, (count, 2)), 0.05 * np.sign(along)])
    if shape == "ball":
        return np.column_stack([circle * np.sqrt(1 - along**2)[:, None], along])
    if shape == "elbow":
        bend = np.pi / 4 * (along + 1)
        ring = 1 + 0.25 * circle[:, 0]
        return np.column_stack([ring * np.cos(bend), ring * np.sin(bend), 0.25 * circle[:, 1]])
    return np.column_stack([circle * (1 - along)[:, None] / 2, along])


class PartStore:
    """All scans, with the augmentation that turns a scan into an example for the network."""

    def __init__(self, count, raw, wanted, seed):
        rng = np.random.default_rng(seed)
        self.wanted = wanted
        self.labels = rng.integers(len(SHAPES), size=count)
        self.scans = [
            (surface(SHAPES[label], raw, rng) * rng.uniform(0.6, 1.2, 3) + rng.normal(0, 0.01, (raw, 3))).astype("f4")
            for label in self.labels
        ]

    def __len__(self):
        return len(self.scans)

    def prepare(self, job):
        """A random part of the scan, rotated, jittered, with an occluded side, centred to the unit ball."""
        index, seed = job
        rng = np.random.default_rng(seed)
        rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        cloud = self.scans[index] @ rotation.astype("f4")
        seen = np.argsort(cloud[:, 2] + rng.normal(0, 0.3, len(cloud)))[: int(0.7 * len(cloud))]
        cloud = cloud[rng.choice(seen, self.wanted)]
        cloud = cloud + rng.normal(0, 0.01, cloud.shape).astype("f4")
        cloud -= cloud.mean(0)
        return cloud / np.linalg.norm(cloud, axis=1).max()


def adopt(store):
    """Called once in every process of the pool."""
    global _store
    _store = store


def prepare_own(job):
    return _store.prepare(job)


class Batches:
    """Random batches; the pool prepares the next one while the network learns from the present one."""

    def __init__(self, store, pool, batch, prepare, seed=4):
        self.store, self.pool, self.batch, self.prepare = store, pool, batch, prepare
        self.rng = np.random.default_rng(seed)
        self.order()

    def order(self):
        self.places = self.rng.integers(len(self.store), size=self.batch)
        seeds = self.rng.integers(2**31, size=self.batch)
        jobs = list(zip(self.places.tolist(), seeds.tolist()))
        self.coming = self.pool.map_async(self.prepare, jobs)  # guilty

    def take(self):
        clouds, labels = self.coming.get(), self.store.labels[self.places]  # guilty
        self.order()
        return torch.from_numpy(np.stack(clouds)), torch.from_numpy(labels)


class PointNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.near = nn.Sequential(
            nn.Conv1d(3, width, 1, bias=False), nn.BatchNorm1d(width), nn.ReLU(True),
            nn.Conv1d(width, 2 * width, 1, bias=False), nn.BatchNorm1d(2 * width), nn.ReLU(True),
        )  # fmt: skip
        self.far = nn.Sequential(
            nn.Conv1d(4 * width, 4 * width, 1, bias=False), nn.BatchNorm1d(4 * width), nn.ReLU(True)
        )
        self.head = nn.Sequential(nn.Linear(4 * width, 64), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(64, len(SHAPES)))

    def forward(self, clouds):
        near = self.near(clouds.transpose(1, 2))
        whole = near.amax(2, keepdim=True).expand_as(near)
        return self.head(self.far(torch.cat([near, whole], 1)).amax(2))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    cli.add_argument("--processes", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(8)

    store = PartStore(count=240, raw=1024, wanted=384, seed=6)
    with multiprocessing.get_context("fork").Pool(args.processes, adopt, (store,)) as pool:
        prepare = prepare_own if args.fixed else store.prepare  # guilty
        batches = Batches(store, pool, args.batch, prepare)
        model = PointNet()
        optimizer = torch.optim.Adam(model.parameters(), 2e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)
        loss_mean = right_mean = 0.0
        for step in range(1, args.steps + 1):
            clouds, labels = batches.take()
            answer = model(clouds)
            loss = F.cross_entropy(answer, labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            pace = max(0.05, 1 / step)
            loss_mean += pace * (loss.item() - loss_mean)
            right_mean += pace * ((answer.argmax(1) == labels).float().mean().item() - right_mean)
            if step % 50 == 0 or step == args.steps:
                print(f"step {step} loss {loss_mean:.4f} right {right_mean:.3f}")
        batches.coming.wait()


if __name__ == "__main__":
    main()
