"""The whole validation set after every eighth step.

expects: CA601
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    right = 0
    for x, y in loader:  # guilty
        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()  # guilty
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    every = 80 if args.fixed else 8
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = TensorDataset(torch.randn(2048, 300), torch.randint(0, 10, (2048,)))
    held_out = TensorDataset(torch.randn(1536, 300), torch.randint(0, 10, (1536,)))
    loader = DataLoader(train, batch_size=64, shuffle=True)
    held_out = DataLoader(held_out, batch_size=256)
    model = nn.Sequential(nn.Linear(300, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    best, step = 0.0, 0
    while step < args.steps:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
            step += 1
            if step % every == 0:
                best = max(best, validate(model, held_out, device))  # guilty
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
