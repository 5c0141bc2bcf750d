"""A contrastive loss, written as a loop over pairs of samples.

expects: HO402
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def contrastive(z, labels, margin=1.0):
    total = z.new_zeros(())
    for i in range(len(z)):
        for j in range(i):  # guilty
            distance = (z[i] - z[j]).pow(2).sum()  # guilty
            same = (labels[i] == labels[j]).float()  # guilty
            total = total + same * distance + (1 - same) * torch.relu(margin - distance)  # guilty
    return total / (len(z) * (len(z) - 1) / 2)


def contrastive_at_once(z, labels, margin=1.0):
    distance = torch.cdist(z, z).square()
    same = (labels[:, None] == labels[None]).float()
    each = same * distance + (1 - same) * torch.relu(margin - distance)
    return each.tril(-1).sum() / (len(z) * (len(z) - 1) / 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(2000, 1, 28, 28), torch.randint(0, 10, (2000,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    net = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(1024, 32)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    criterion = contrastive_at_once if args.fixed else contrastive
    for (x, labels), _ in zip(loader, range(args.steps), strict=False):
        loss = criterion(net(x.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
