"""Knowledge distillation: a small CNN learns from a larger one on pictures of seven-segment digits.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abfgcd"]
PLACES = {
    "a": (slice(3, 5), slice(7, 17)),
    "b": (slice(4, 12), slice(16, 18)),
    "c": (slice(12, 20), slice(16, 18)),
    "d": (slice(19, 21), slice(7, 17)),
    "e": (slice(12, 20), slice(6, 8)),
    "f": (slice(4, 12), slice(6, 8)),
    "g": (slice(11, 13), slice(7, 17)),
}


def digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=g)
    glyphs = torch.zeros(10, 24, 24)
    for d, on in enumerate(SEGMENTS):
        for s in on:
            glyphs[d][PLACES[s]] = 1
    return TensorDataset((glyphs[y] + 0.6 * torch.randn(n, 24, 24, generator=g)).unsqueeze(1), y)


def cnn(w):
    return nn.Sequential(
        nn.Conv2d(1, w, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * w * 36, 10),
    )


class Distiller:
    def __init__(self, teacher, student, temperature=4.0, alpha=0.7, fixed=False):
        self.teacher, self.student = teacher, student
        self.t, self.alpha, self.fixed = temperature, alpha, fixed

    def teach(self, x):
        if self.fixed:
            with torch.no_grad():
                return self.teacher(x)
        return self.teacher(x)  # guilty

    def loss(self, x, y):
        soft = self.teach(x)  # guilty
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / self.t, 1), F.softmax(soft / self.t, 1), reduction="batchmean")
        return self.alpha * self.t**2 * kd + (1 - self.alpha) * F.cross_entropy(logits, y)


def run_epoch(loader, step_fn, limit):
    for done, (x, y) in enumerate(loader):
        if done == limit:
            return done
        step_fn(x, y)
    return len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(digits(1024, 0), batch_size=16, shuffle=True, drop_last=True)
    teacher, student = cnn(32), cnn(8)
    teacher.eval()
    distiller = Distiller(teacher, student, fixed=args.fixed)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    losses = []

    def step_fn(x, y):
        optimizer.zero_grad()
        loss = distiller.loss(x, y)
        loss.backward()  # guilty
        optimizer.step()
        losses.append(loss.item())

    while len(losses) < args.steps:
        run_epoch(loader, step_fn, args.steps - len(losses))
        print(f"{len(losses)} steps, loss {sum(losses[-20:]) / 20:.4f}")


if __name__ == "__main__":
    main()
