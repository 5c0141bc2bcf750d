"""MAML with second derivatives on small pictures: the outer loss is differentiated through the inner updates.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

WAYS = 5


class Episodes:
    def __init__(self, classes=200, shots=2, queries=4, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.proto = torch.randn(classes, 1, 20, 20, generator=self.g)
        self.shots, self.queries = shots, queries

    def task(self):
        classes = torch.randperm(len(self.proto), generator=self.g)[:WAYS]
        n = self.shots + self.queries
        x = self.proto[classes].repeat_interleave(n, 0) + 0.5 * torch.randn(WAYS * n, 1, 20, 20, generator=self.g)
        y = torch.arange(WAYS).repeat_interleave(n)
        support = torch.arange(WAYS * n) % n < self.shots
        return x[support], y[support], x[~support], y[~support]

    def batch(self, tasks):
        return [torch.stack(part) for part in zip(*[self.task() for _ in range(tasks)], strict=True)]


def network(width=16):
    def stage(a, b):
        return [nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4, b), nn.Softplus()]

    return nn.Sequential(*stage(1, width), *stage(width, width), nn.Flatten(), nn.Linear(width * 25, WAYS))


def make_objective(model, inner_lr, inner_steps):
    def loss_of(params, x, y):
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    def adapted(params, support_x, support_y, query_x, query_y):
        for _ in range(inner_steps):
            g = grad(loss_of)(params, support_x, support_y)
            params = {k: p - inner_lr * g[k] for k, p in params.items()}
        logits = functional_call(model, params, (query_x,))
        return F.cross_entropy(logits, query_y), (logits.argmax(-1) == query_y).float().mean()

    return lambda params, *task: vmap(adapted, in_dims=(None, 0, 0, 0, 0), randomness="error")(params, *task)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--inner-steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, episodes = network(), Episodes()
    objective = make_objective(model, 0.4, args.inner_steps)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        losses, accs = objective(dict(model.named_parameters()), *episodes.batch(args.tasks))
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {losses.mean().item():.4f} acc {accs.mean().item():.3f}")


if __name__ == "__main__":
    main()
