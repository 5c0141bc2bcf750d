"""Second-order MAML: few-shot regression of waves, with learned step sizes for the inner loop.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class WaveTasks:
    """A task is a wave with an amplitude, a phase and a frequency of its own."""

    def __init__(self, seed, shots):
        self.gen, self.shots = torch.Generator().manual_seed(seed), shots

    def draw(self, n):
        amp = 0.5 + 4.5 * torch.rand(n, 1, 1, generator=self.gen)
        phase = math.pi * torch.rand(n, 1, 1, generator=self.gen)
        freq = 0.6 + 0.8 * torch.rand(n, 1, 1, generator=self.gen)
        x = 10 * torch.rand(n, 4 * self.shots, 1, generator=self.gen) - 5
        y = amp * torch.sin(freq * x + phase)
        return x[:, : self.shots], y[:, : self.shots], x[:, self.shots :], y[:, self.shots :]


class MetaNet(nn.Module):
    def __init__(self, width=128, inner_steps=3):
        super().__init__()
        sizes = [1, width, width, width, 1]
        self.weights = nn.ParameterList()
        for a, b in itertools.pairwise(sizes):
            self.weights.append(nn.Parameter(torch.randn(a, b) / math.sqrt(max(a, 2))))
            self.weights.append(nn.Parameter(torch.zeros(1, b)))
        self.log_lr = nn.Parameter(torch.full((inner_steps, len(self.weights)), -4.0))

    def fresh(self, tasks):
        return [w.expand(tasks, *w.shape) for w in self.weights]

    @staticmethod
    def apply(weights, x):
        last = len(weights) - 2
        for i in range(0, len(weights), 2):
            x = torch.baddbmm(weights[i + 1], x, weights[i])
            if i < last:
                x = torch.tanh(x)
        return x

    def adapt(self, x, y):
        fast = self.fresh(len(x))
        for rates in self.log_lr.exp():
            loss = F.mse_loss(self.apply(fast, x), y, reduction="none").mean((1, 2)).sum()
            grads = torch.autograd.grad(loss, fast, create_graph=True)
            fast = [w - rate * g for w, rate, g in zip(fast, rates, grads, strict=True)]
        return fast


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=600)
    cli.add_argument("--tasks", type=int, default=16)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    train, held = WaveTasks(1, shots=10), WaveTasks(2, shots=10)
    net = MetaNet()
    groups = [{"params": list(net.weights), "lr": 1e-3}, {"params": [net.log_lr], "lr": 5e-3}]
    optimizer = torch.optim.Adam(groups)
    for step in range(1, args.steps + 1):
        x, y, query_x, query_y = train.draw(args.tasks)
        loss = F.mse_loss(net.apply(net.adapt(x, y), query_x), query_y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        if step % 100 == 0:
            x, y, query_x, query_y = held.draw(32)
            test = F.mse_loss(net.apply(net.adapt(x, y), query_x), query_y)
            print(f"step {step} loss {loss.item():.3f} held out {test.item():.3f}")


if __name__ == "__main__":
    main()
