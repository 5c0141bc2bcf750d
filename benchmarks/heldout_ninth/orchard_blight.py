"""Detects blight on photographs of apple leaves, streamed from packed JPEG shards: small residual net.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io
import random
import struct
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, VIEW, KINDS = 288, 64, 4
HEAD = struct.Struct("<IB")


def photograph(rng, kind):
    """A green leaf with spots whose number and colour depend on the disease."""
    ys, xs = np.mgrid[:SIDE, :SIDE] / SIDE
    leaf = np.stack([0.2 + 0.1 * xs, 0.5 + 0.2 * np.sin(6 * ys + xs), 0.15 + 0 * xs], -1)
    for _ in range(4 * kind + 2):
        cy, cx, size = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), rng.uniform(0.02, 0.06)
        spot = np.exp(-((ys - cy) ** 2 + (xs - cx) ** 2) / size**2)[..., None]
        leaf = leaf * (1 - spot) + spot * np.array([0.5, 0.3 - 0.05 * kind, 0.1 + 0.08 * kind])
    leaf += rng.normal(0, 0.05, leaf.shape)
    return Image.fromarray((leaf.clip(0, 1) * 255).astype(np.uint8))


def pack(folder, shards, per_shard):
    rng = np.random.default_rng(4)
    for shard in range(shards):
        with open(folder / f"leaves-{shard:03d}.pack", "wb") as out:
            for _ in range(per_shard):
                kind = int(rng.integers(KINDS))
                stream = io.BytesIO()
                photograph(rng, kind).save(stream, "JPEG", quality=90)
                out.write(HEAD.pack(stream.tell(), kind) + stream.getvalue())


class LeafStream(IterableDataset):
    """All shards in a fresh order each epoch, split between the workers, mixed in a small buffer."""

    def __init__(self, folder, early, buffer=48):
        self.shards = sorted(folder.glob("*.pack"))
        self.early, self.buffer, self.epoch = early, buffer, 0

    def records(self, order):
        for shard in order:
            with open(shard, "rb") as source:
                while head := source.read(HEAD.size):
                    size, kind = HEAD.unpack(head)
                    yield source.read(size), kind

    def decode(self, record):
        data, kind = record
        image = Image.open(io.BytesIO(data)).convert("RGB")  # guilty
        image = image.resize((VIEW, VIEW), Image.Resampling.LANCZOS)  # guilty
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1), kind  # guilty

    def mine(self, order, worker, workers):
        if self.early:
            for number, record in enumerate(self.records(order)):
                if number % workers == worker:
                    yield self.decode(record)
        else:
            for number, sample in enumerate(map(self.decode, self.records(order))):  # guilty
                if number % workers == worker:  # guilty
                    yield sample

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        self.epoch += 1
        order = random.Random(self.epoch).sample(self.shards, len(self.shards))
        dice, held = random.Random(100 * self.epoch + worker), []
        for image, kind in self.mine(order, worker, workers):  # guilty
            flipped = image.flip(-1) if dice.random() < 0.5 else image
            held.append((flipped.float().div_(127.5).sub_(1), kind))
            if len(held) == self.buffer:
                yield held.pop(dice.randrange(len(held)))
        dice.shuffle(held)
        yield from held


class Block(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, 2, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.skip = nn.Conv2d(narrow, wide, 1, 2, bias=False)

    def forward(self, x):
        return F.relu(self.path(x) + self.skip(x))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--workers", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(2)

    with tempfile.TemporaryDirectory(prefix="orchard_") as name:
        pack(Path(name), shards=8, per_shard=48)
        stream = LeafStream(Path(name), early=args.fixed)
        loader = DataLoader(stream, 16, num_workers=args.workers, persistent_workers=True, drop_last=True)
        model = nn.Sequential(
            Block(3, 8), Block(8, 16), Block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, KINDS)
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
        step = 0
        while step < args.steps:
            seen = right = 0
            for images, kinds in loader:  # guilty
                scores = model(images)
                loss = F.cross_entropy(scores, kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == kinds).sum().item()
                seen += len(kinds)
                step += 1
                if step == args.steps:
                    break
            print(f"step {step} loss {loss.item():.3f} train accuracy {right / seen:.3f}")


if __name__ == "__main__":
    main()
