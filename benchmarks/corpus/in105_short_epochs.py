"""Short epochs whose workers are started again each time.

expects: IN105
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def train_one_epoch(model, loader, optimizer, device):
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=192)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(256, 256), torch.randn(256, 16))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=args.fixed)  # guilty
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
    model.to(device)
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(max(1, args.steps // len(loader))):
        train_one_epoch(model, loader, optimizer, device)


if __name__ == "__main__":
    main()
