"""Evaluation with a batch size of one.

expects: CA602, CA601
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader, device):
    model.eval()
    error, count = torch.zeros((), device=device), 0
    with torch.no_grad():
        for x, y in loader:  # guilty
            error += (model(x.to(device)) - y.to(device)).abs().sum()  # guilty
            count += len(x)
    model.train()
    return error / count


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(0)
    train_set = TensorDataset(torch.randn(4000, 128, generator=generator), torch.randn(4000, 1, generator=generator))
    test_set = TensorDataset(torch.randn(700, 128, generator=generator), torch.randn(700, 1, generator=generator))
    train_loader = DataLoader(train_set, batch_size=100, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100 if args.fixed else 1)  # guilty
    model = nn.Sequential(nn.Linear(128, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    step = 0
    while step < args.steps:
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 30 == 0:
                evaluate(model, test_loader, device)  # guilty
            if step == args.steps:
                break
