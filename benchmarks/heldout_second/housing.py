"""House prices from a table held in memory; tidied and judged once an epoch.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import argparse
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def houses(count=16_000, columns=40):
    table = torch.randn(count, columns)
    price = table[:, :6].sum(1) + 0.5 * table[:, 6] * table[:, 7] + 0.1 * torch.randn(count)
    return TensorDataset(table, price)


def network(columns=40, width=384, depth=3):
    layers = [nn.Linear(columns, width), nn.SiLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1), nn.Flatten(0))


@torch.no_grad()
def judge(net, loader):
    net.eval()
    errors = [(net(table) - price).abs().mean() for table, price in loader]
    net.train()
    return torch.stack(errors).mean().item()


def fit(steps):
    kept, held_out = random_split(houses(), [15_360, 640])
    train = DataLoader(kept, batch_size=256, shuffle=True)
    valid = DataLoader(held_out, batch_size=640)
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    epochs = max(1, steps // len(train))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        for table, price in train:
            loss = nn.functional.huber_loss(net(table), price)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        gc.collect()
        print(f"epoch {epoch + 1}: held-out error {judge(net, valid):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fit(arguments.steps)
