"""Speaker embeddings trained by two processes with DistributedDataParallel over gloo.

expects: RA901
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SPEAKERS = 64


class XVector(nn.Module):
    def __init__(self, feats=40, dim=128):
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(feats, dim, 5, padding=2), nn.ReLU(), nn.Conv1d(dim, dim, 3, padding=1, dilation=1), nn.ReLU()
        )
        self.embed = nn.Linear(2 * dim, 256)
        self.classify = nn.Linear(256, SPEAKERS)

    def forward(self, x):
        h = self.frames(x)
        e = self.embed(torch.cat([h.mean(-1), h.std(-1)], 1))
        return self.classify(F.relu(e)), e


def utterances(n=1024):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, SPEAKERS, (n,), generator=g)
    centre = torch.randn(SPEAKERS, 40, 1, generator=g)
    return TensorDataset(centre[y] + torch.randn(n, 40, 80, generator=g), y)


class Monitor:
    """Follows how the embeddings spread."""

    def __init__(self, every, keep=6):
        self.every, self.keep, self.recent = every, keep, []

    def update(self, step, embedding, weight):
        if step % self.every:
            return
        self.recent = [*self.recent[1 - self.keep :], embedding.detach()]
        spectrum = torch.linalg.svdvals(torch.cat(self.recent).T.double().cov())  # guilty
        spread = torch.linalg.svdvals(weight.detach().double())  # guilty
        self.rank = int((spectrum > 0.01 * spectrum[0]).sum() + (spread > 0.1 * spread[0]).sum())


def worker(rank, world, store, args):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    data = utterances()
    sampler = DistributedSampler(data, world, rank, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(XVector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    monitor = Monitor(50 if args.fixed else 1)
    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            logits, embedding = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                monitor.update(step, embedding, model.module.embed.weight)  # guilty
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} rank {monitor.rank}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (2, os.path.join(folder, "store"), args), nprocs=2)
