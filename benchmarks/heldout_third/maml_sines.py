"""Model-agnostic meta-learning on sine waves, with functional inner updates.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


@dataclass
class Config:
    tasks: int = 16
    shots: int = 20
    inner_lr: float = 0.02
    inner_steps: int = 2
    outer_lr: float = 1e-3
    hidden: int = 96


class Regressor(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x)


def sample_tasks(cfg, g):
    amp = 0.1 + 4.9 * torch.rand(cfg.tasks, 1, 1, generator=g)
    phase = 3.14 * torch.rand(cfg.tasks, 1, 1, generator=g)
    x = 10 * torch.rand(cfg.tasks, 2 * cfg.shots, 1, generator=g) - 5
    return x, amp * torch.sin(x + phase)


class MetaLearner:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    def loss(self, params, x, y):
        return F.mse_loss(functional_call(self.model, params, (x,)), y)

    def task(self, params, x, y):
        k = self.cfg.shots
        for _ in range(self.cfg.inner_steps):
            grads = grad(self.loss)(params, x[:k], y[:k])
            params = {n: p - self.cfg.inner_lr * grads[n] for n, p in params.items()}
        return self.loss(params, x[k:], y[k:])

    def meta_loss(self, x, y):
        params = dict(self.model.named_parameters())
        return vmap(self.task, in_dims=(None, 0, 0))(params, x, y).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    cfg = Config()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    learner = MetaLearner(Regressor(cfg.hidden), cfg)
    optimizer = torch.optim.Adam(learner.model.parameters(), lr=cfg.outer_lr)
    for it in range(args.steps):
        loss = learner.meta_loss(*sample_tasks(cfg, g))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 50 == 0:
            print(f"iteration {it}: meta loss {loss.item():.4f}")
