"""Activity recognition with an LSTM and attention; losses and metrics are plain functions of the model.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class AttentiveLSTM(nn.Module):
    def __init__(self, channels=9, hidden=64, classes=6):
        super().__init__()
        self.conv = nn.Conv1d(channels, hidden, 5, 2, 2)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden, 1)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.lstm(h)
        w = self.score(h).softmax(1)
        return self.fc((h * w).sum(1))


def loss_fn(model, x, y):
    return F.cross_entropy(model(x), y, label_smoothing=0.05)


def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean()  # guilty


def confidence(model, x, y):
    return model(x).softmax(1).max(1).values.mean()  # guilty


def entropy(model, x, y):
    p = model(x).softmax(1)  # guilty
    return -(p * p.clamp_min(1e-8).log()).sum(1).mean()


METRICS = {"acc": accuracy, "conf": confidence, "entropy": entropy}


def from_logits(name, logits, y):
    p = logits.detach().softmax(1)
    if name == "acc":
        return (p.argmax(1) == y).float().mean()
    if name == "conf":
        return p.max(1).values.mean()
    return -(p * p.clamp_min(1e-8).log()).sum(1).mean()


def separate_step(model, x, y):
    loss = loss_fn(model, x, y)
    return loss, {name: fn(model, x, y) for name, fn in METRICS.items()}  # guilty


def shared_step(model, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.05)
    return loss, {name: from_logits(name, logits, y) for name in METRICS}


def wearables(n, length=96):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 6, (n,), generator=g)
    t = torch.arange(length).view(1, -1, 1) / 10
    speed = (1 + y).view(-1, 1, 1).float()
    x = torch.sin(speed * t + torch.rand(n, 1, 9, generator=g) * 6.28) + 0.5 * torch.randn(n, length, 9, generator=g)
    return TensorDataset(x, y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=145)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = AttentiveLSTM()
    loader = DataLoader(wearables(1600), 20, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step_fn = partial(shared_step if args.fixed else separate_step, model)
    running, step = dict.fromkeys(METRICS, 0.0), 0
    while step < args.steps:
        for x, y in loader:
            loss, metrics = step_fn(x, y)  # guilty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            for name, value in metrics.items():
                running[name] = 0.9 * running[name] + 0.1 * float(value.detach())
            if step % 30 == 0:
                print(step, f"{loss.item():.4f}", {k: round(v, 3) for k, v in running.items()})
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
