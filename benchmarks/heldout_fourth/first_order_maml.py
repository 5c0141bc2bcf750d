"""First-order MAML on sine waves: the inner loop adapts a copy, the outer step uses the copy's gradient.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch.func import functional_call


class SineNet(torch.nn.Module):
    def __init__(self, width=160, depth=4):
        super().__init__()
        self.register_buffer("freq", torch.arange(1, 9) * 0.5)
        dims = [17] + [width] * depth + [1]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(dims[i], dims[i + 1]) for i in range(len(dims) - 1))

    def forward(self, x):
        angle = x * self.freq
        x = torch.cat([x, angle.sin(), angle.cos()], 1)
        for layer in self.layers[:-1]:
            x = F.softplus(layer(x))
        return self.layers[-1](x)


class SineTasks:
    """A task is a wave with an amplitude and a phase of its own."""

    def __init__(self, shots, queries, seed):
        self.shots, self.queries, self.g = shots, queries, torch.Generator().manual_seed(seed)

    def sample(self):
        amplitude = torch.rand(1, generator=self.g) * 4.9 + 0.1
        phase = torch.rand(1, generator=self.g) * math.pi
        x = torch.rand(self.shots + self.queries, 1, generator=self.g) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        return x[: self.shots], y[: self.shots], x[self.shots :], y[self.shots :]


class FirstOrderMAML:
    def __init__(self, model, inner_lr, inner_steps, every_update):
        self.model, self.inner_lr, self.inner_steps = model, inner_lr, inner_steps
        self.every_update = every_update

    def loss(self, params, x, y):
        return F.mse_loss(functional_call(self.model, params, (x,)), y)

    def adapt(self, task):
        """Losses on the query set before and after each of the updates, and the parameters of the last."""
        xs, ys, xq, yq = task
        fast = {k: p.detach().clone().requires_grad_() for k, p in self.model.named_parameters()}
        losses_q = [self.loss(fast, xq, yq)] if self.every_update else []  # guilty
        for _ in range(self.inner_steps):
            grads = torch.autograd.grad(self.loss(fast, xs, ys), list(fast.values()))
            fast = {
                k: (p - self.inner_lr * g).detach().requires_grad_()
                for (k, p), g in zip(fast.items(), grads, strict=True)
            }
            if self.every_update:
                losses_q.append(self.loss(fast, xq, yq))  # guilty
        if not self.every_update:
            losses_q.append(self.loss(fast, xq, yq))
        return losses_q, fast

    def meta_gradient(self, tasks):
        total = {k: torch.zeros_like(p) for k, p in self.model.named_parameters()}
        losses = []
        for task in tasks:
            losses_q, fast = self.adapt(task)  # guilty
            grads = torch.autograd.grad(losses_q[-1], list(fast.values()))
            for (k, _), g in zip(fast.items(), grads, strict=True):
                total[k] += g / len(tasks)
            losses.append(losses_q[-1].detach())
        for k, p in self.model.named_parameters():
            p.grad = total[k]
        return torch.stack(losses).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--tasks", type=int, default=4)
    ap.add_argument("--shots", type=int, default=32)
    ap.add_argument("--queries", type=int, default=128)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = SineNet()
    learner = FirstOrderMAML(model, 0.01, 4, every_update=not args.fixed)
    tasks = SineTasks(args.shots, args.queries, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        loss = learner.meta_gradient([tasks.sample() for _ in range(args.tasks)])
        optimizer.step()
        if step % 20 == 0:
            print(f"meta step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
