"""Hundreds of small tensors of a batch go to the device one at a time.

expects: TR202
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        boxes = torch.rand(count, 12, 4, generator=generator)
        scores = torch.rand(count, 12, generator=generator)
        self.pairs = [list(zip(a.unbind(), b.unbind(), strict=True)) for a, b in zip(boxes, scores, strict=True)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def as_list(scenes):
    return [pair for scene in scenes for pair in scene]


def as_tensors(scenes):
    pairs = as_list(scenes)
    return torch.stack([box for box, _ in pairs]), torch.stack([score for _, score in pairs])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    collate = as_tensors if args.fixed else as_list
    dataset = Scenes(16 * args.steps)
    loader = DataLoader(dataset, batch_size=16, collate_fn=collate)
    net = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for batch in loader:
        if args.fixed:
            boxes, scores = (part.to(device, non_blocking=True) for part in batch)
        else:
            boxes = torch.stack([box.to(device) for box, _ in batch])  # guilty
            scores = torch.stack([score.to(device) for _, score in batch])  # guilty
        loss = nn.functional.mse_loss(net(boxes).squeeze(1), scores)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
