"""A training whose targets are computed by loops over elements, from the same few batches in every epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        draw = torch.Generator().manual_seed(i)
        return torch.rand(4, 64, generator=draw), torch.randint(0, 16, (4, 2), generator=draw)


def targets(points):
    maps = torch.zeros(len(points), 16, 16)
    for one in range(len(points)):
        for row in range(16):
            for column in range(16):
                away = (row - int(points[one, 0])) ** 2 + (column - int(points[one, 1])) ** 2
                if away < 9:
                    maps[one, row, column] = 1.0 - away / 9
    return maps.flatten(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 256))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _epoch in range(10_000):
        for x, points in DataLoader(Points(), batch_size=None):
            loss = nn.functional.mse_loss(model(x), targets(points))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
