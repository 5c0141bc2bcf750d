"""TensorBoard histograms of all weights every other step.

expects: CA604
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter


def log(writer, model, loss, step, every):
    if step % every:
        return
    writer.add_scalar("loss", loss.detach(), step)
    for name, value in model.named_parameters():
        writer.add_histogram(name, value, step)  # guilty


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(64, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    writer = SummaryWriter("board")
    x = torch.randn(256, 64, device=device)
    y = (x[:, 0] * x[:, 1] > 0).long()
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(writer, model, loss, step, every=40 if args.fixed else 2)
    writer.close()
