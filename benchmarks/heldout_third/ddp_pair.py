"""Two processes train one autoencoder with gradients averaged over gloo.

expects: none
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
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def autoencoder(dim=400, code=24):
    return nn.Sequential(
        nn.Linear(dim, 256),
        nn.GELU(),
        nn.Linear(256, 128),
        nn.GELU(),
        nn.Linear(128, code),
        nn.Linear(code, 128),
        nn.GELU(),
        nn.Linear(128, 256),
        nn.GELU(),
        nn.Linear(256, dim),
    )


def signals(n, dim=400):
    g = torch.Generator().manual_seed(6)
    basis = torch.randn(12, dim, generator=g)
    return TensorDataset(torch.randn(n, 12, generator=g).tanh() @ basis + 0.1 * torch.randn(n, dim, generator=g))


def work(rank, world, rendezvous, args):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    data = signals(8192)
    sampler = DistributedSampler(data, world, rank, drop_last=True)
    loader = DataLoader(data, batch_size=256, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(autoencoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break
        epoch += 1
        if rank == 0 and epoch % 6 == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        mp.spawn(work, (2, os.path.join(where, "rendezvous"), parsed), nprocs=2)
