"""Learns to tell new juggling patterns from a few wrist recordings: second-order MAML with 1-d convolutions.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

CHANNELS, LENGTH, WAYS = 6, 96, 5


class Patterns:
    """Each pattern has its own rhythm, shape of throw and share of each hand."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.rhythm = rng.uniform(3, 12, count)
        self.shape = rng.normal(0, 1, (count, CHANNELS, 3, 2))
        self.rng = rng

    def record(self, pattern, shots):
        """Recordings of one pattern by jugglers of different tempo."""
        t = np.linspace(0, 1, LENGTH)
        tempo = self.rhythm[pattern] * self.rng.uniform(0.9, 1.1, (shots, 1))
        angle = 2 * np.pi * (tempo * t + self.rng.random((shots, 1)))
        harmonics = np.stack([[np.sin((k + 1) * angle), np.cos((k + 1) * angle)] for k in range(3)])
        signal = np.einsum("ckj,kjst->sct", self.shape[pattern], harmonics)
        return signal + self.rng.normal(0, 0.8, signal.shape)

    def task(self, shots, queries):
        chosen = self.rng.choice(len(self.rhythm), WAYS, replace=False)
        recorded = np.stack([self.record(pattern, shots + queries) for pattern in chosen]).astype(np.float32)
        recorded = torch.from_numpy(recorded)
        label = torch.arange(WAYS)[:, None]
        support = recorded[:, :shots].flatten(0, 1), label.expand(-1, shots).flatten()
        query = recorded[:, shots:].flatten(0, 1), label.expand(-1, queries).flatten()
        return support, query


class Wrist(nn.Module):
    def __init__(self, width=64, layers=4):
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for number in range(layers):
            self.convs.append(nn.Conv1d(width if number else CHANNELS, width, 5, padding=2))
            self.norms.append(nn.GroupNorm(8, width))
        self.head = nn.Linear(width, WAYS)

    def forward(self, x):
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = F.relu(norm(conv(x)))
            if number in (1, 2):
                x = F.avg_pool1d(x, 2)
        return self.head(x.mean(2))


class MetaLearner:
    def __init__(self, model, inner_steps, inner_rate):
        self.model, self.inner_steps = model, inner_steps
        self.rates = nn.ParameterDict(
            {name.replace(".", "/"): torch.tensor(inner_rate) for name, _ in model.named_parameters()}
        )
        self.optimizer = torch.optim.Adam([*model.parameters(), *self.rates.parameters()], 1e-3)

    def adapt(self, support, second_order):
        """Weights after some steps on the support set, as a function of the first weights and the rates."""
        inputs, label = support
        weights = dict(self.model.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.cross_entropy(functional_call(self.model, weights, (inputs,)), label)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=second_order)
            weights = {
                name: weight - self.rates[name.replace(".", "/")] * slope
                for (name, weight), slope in zip(weights.items(), slopes)
            }
        return weights

    def learn(self, tasks):
        self.optimizer.zero_grad()
        total = 0.0
        for support, (inputs, label) in tasks:
            weights = self.adapt(support, second_order=True)
            loss = F.cross_entropy(functional_call(self.model, weights, (inputs,)), label) / len(tasks)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return total

    def score(self, task):
        support, (inputs, label) = task
        weights = self.adapt(support, second_order=False)
        with torch.no_grad():
            return (functional_call(self.model, weights, (inputs,)).argmax(1) == label).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--tasks", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(19)
    known, new = Patterns(300, seed=1), Patterns(60, seed=2)
    learner = MetaLearner(Wrist(), inner_steps=2, inner_rate=0.05)
    losses = []
    for step in range(1, args.steps + 1):
        losses.append(learner.learn([known.task(shots=5, queries=8) for _ in range(args.tasks)]))
        if step % 40 == 0 or step == args.steps:
            score = np.mean([learner.score(new.task(shots=5, queries=8)) for _ in range(5)])
            print(f"step {step} query loss {np.mean(losses[-40:]):.3f} accuracy on new patterns {score:.3f}")


if __name__ == "__main__":
    main()
