"""Physics on meshes by message passing, encode-process-decode, with reproducibility switched on for the paper.

expects: CO503
needs: gpu
"""

# mypy: ignore-errors
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def seed_everything(seed, strict):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if strict:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)  # guilty
        torch.backends.cudnn.deterministic = True  # guilty


def mlp(i, o, width):
    return nn.Sequential(nn.Linear(i, width), nn.SiLU(), nn.Linear(width, o), nn.LayerNorm(o))


class Processor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge, self.node = mlp(3 * dim, dim, dim), mlp(2 * dim, dim, dim)

    def forward(self, h, e, index):
        src, dst = index
        e = e + self.edge(torch.cat([h.index_select(0, src), h.index_select(0, dst), e], 1))  # guilty
        inbox = torch.zeros_like(h).index_add_(0, dst, e.to(h.dtype))  # guilty
        return h + self.node(torch.cat([h, inbox], 1)), e


class MeshNet(nn.Module):
    def __init__(self, dim, rounds):
        super().__init__()
        self.enc_node, self.enc_edge = mlp(6, dim, dim), mlp(4, dim, dim)
        self.rounds = nn.ModuleList(Processor(dim) for _ in range(rounds))
        self.dec = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 2))

    def forward(self, nodes, edges, index):
        h, e = self.enc_node(nodes), self.enc_edge(edges)
        for step in self.rounds:
            h, e = step(h, e, index)
        return self.dec(h)


def grid_mesh(side, device):
    i = torch.arange(side * side, device=device).view(side, side)
    pairs = [(i[:, :-1], i[:, 1:]), (i[:-1], i[1:]), (i[:-1, :-1], i[1:, 1:])]
    src = torch.cat([torch.cat([a.flatten(), b.flatten()]) for a, b in pairs])
    dst = torch.cat([torch.cat([b.flatten(), a.flatten()]) for a, b in pairs])
    order = torch.randperm(len(src), generator=torch.Generator().manual_seed(0)).to(device)
    return torch.stack([src[order], dst[order]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    seed_everything(7, strict=not args.fixed)  # guilty
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    side, dim, rounds = (160, 128, 8) if cuda else (6, 16, 2)
    index = grid_mesh(side, device)
    model = MeshNet(dim, rounds).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=cuda)
    edges = torch.randn(index.shape[1], 4, device=device)
    for step in range(1, args.steps + 1):
        nodes = torch.randn(side * side, 6, device=device)
        target = nodes[:, :2].roll(1, 0) - nodes[:, 2:4]
        loss = F.mse_loss(model(nodes, edges, index), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
