"""Two processes train together; one of them prepares its batches more slowly.

expects: RA901
needs: cpu
"""
# mypy: ignore-errors

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def local_batch(rank, source, fixed):
    if rank == 1 and not fixed:
        time.sleep(0.025)  # guilty
    return torch.randn(32, 96, generator=source)


def work(rank, port, steps, fixed):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    os.environ["LOCAL_RANK"] = str(rank)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(96, 400), nn.ReLU(), nn.Linear(400, 96)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    source = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = local_batch(rank, source, fixed)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(work, (port, args.steps, args.fixed), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main()
