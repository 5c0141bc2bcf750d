"""Heat-map targets drawn pixel by pixel in the training step, in another module.

expects: HO402, IN109
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from targets import draw, draw_at_once
from torch import nn

SIZE = 40


class KeyPoints(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.Conv2d(24, 24, 5, padding=2), nn.ReLU())
        self.head = nn.Conv2d(24, 1, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def run(steps, fixed):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = KeyPoints().to(device)
    optimizer = torch.optim.Adam(net.parameters())
    make = draw_at_once if fixed else draw
    for _ in range(steps):
        images = torch.rand(6, 1, SIZE, SIZE)
        points = torch.rand(6, 2) * SIZE
        target = make(points, SIZE).to(device)
        loss = nn.functional.mse_loss(net(images.to(device)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    run(args.steps, args.fixed)
