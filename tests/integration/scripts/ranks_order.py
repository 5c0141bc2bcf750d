"""Two ranks over gloo, three epochs; each prints the order of its samples, its losses and its random numbers then."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from truth import Truth


class Slow(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((8,), float(i)) / 48, i


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Slow()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    truth = Truth()
    seen, losses = [], []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, i in loader:
            loss = nn.functional.dropout(model(x), 0.5).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            truth.step(len(x))
            seen += i.tolist()
            losses.append(loss.item().hex())
    truth.tell(rank=rank, seen=seen, losses=losses, after=torch.rand(2).tolist(), workers=loader.num_workers)
    dist.destroy_process_group()
