"""Two processes, started by spawn, each with its half of the data; gradients are averaged by hand over gloo.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2


class DeepNarrow(nn.Module):
    """Many thin layers with gates, so that the net has a few hundred small parameters."""

    def __init__(self, dim=32, width=48, depth=40, classes=5):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.value = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.gate = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        for norm, value, gate in zip(self.norm, self.value, self.gate, strict=True):
            z = norm(x)
            x = x + value(z) * torch.sigmoid(gate(z))
        return self.out(x)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)  # guilty
        p.grad /= WORLD  # guilty


def average_in_one(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    flat /= WORLD
    for g, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        g.copy_(part.view_as(g))


def worker(rank, args):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    centers = torch.randn(5, 32)
    y = torch.arange(4000) % 5
    data = TensorDataset(centers[y] + torch.randn(4000, 32), y)
    sampler = DistributedSampler(data, WORLD, rank, seed=1)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    model = DeepNarrow()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    reduce = average_in_one if args.fixed else average_gradients
    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for x, target in loader:
            loss = nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            reduce(model)  # guilty
            optimizer.step()
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        if rank == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    arguments.port = free_port()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    mp.spawn(worker, (arguments,), nprocs=WORLD)
