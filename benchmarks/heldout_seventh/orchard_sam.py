"""Grades apples from spectra with sharpness-aware minimisation, so that it holds for another orchard's harvest.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

BANDS, GRADES = 256, 5


class Spectra(Dataset):
    """Takes a list of rows and gives them at once, so no collate function is needed."""

    def __init__(self, n, shift, seed):
        rng = np.random.default_rng(seed)
        band = np.linspace(0, 1, BANDS)
        grade = rng.integers(0, GRADES, n)
        ripe = (grade + rng.normal(0, 0.35, n)) / GRADES
        centre = 0.3 + 0.4 * ripe[:, None] + shift
        curve = np.exp(-((band - centre) ** 2) / 0.01) + 0.5 * np.exp(-((band - 0.8) ** 2) / 0.003)
        curve = curve * rng.uniform(0.7, 1.3, (n, 1)) + 0.05 * rng.normal(size=(n, BANDS))
        self.curves = torch.tensor(curve[:, None], dtype=torch.float32)
        self.grades = torch.from_numpy(grade)

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, rows):
        return self.curves[rows], self.grades[rows]


class Grader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 9, 2, 4),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.Conv1d(width, 2 * width, 7, 2, 3),
            nn.GroupNorm(4, 2 * width),
            nn.GELU(),
            nn.Conv1d(2 * width, 2 * width, 5, 2, 2),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(8 * width, GRADES),
        )

    def forward(self, x):
        return self.net(x)


class SharpnessAware:
    """Climbs to the worst place nearby, takes the gradient there, and steps from where it was."""

    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho = list(params), base, rho

    def step(self, closure):
        loss = closure()
        grads = [p.grad for p in self.params]
        size = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        with torch.no_grad():
            climb = torch._foreach_mul(grads, self.rho / (size + 1e-12))
            torch._foreach_add_(self.params, climb)
        closure()
        with torch.no_grad():
            torch._foreach_sub_(self.params, climb)
        self.base.step()
        return loss


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = (model(data.curves).argmax(1) == data.grades).float().mean().item()
    model.train()
    return right


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=128)
    args = cli.parse_args()
    torch.manual_seed(23)
    home, away = Spectra(6000, 0.0, 1), Spectra(300, 0.03, 2)
    batches = BatchSampler(RandomSampler(home), args.batch_size, drop_last=True)
    loader = DataLoader(home, batch_size=None, sampler=batches)
    model = Grader()
    base = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)
    optimizer = SharpnessAware(model.parameters(), base)
    step = 0
    while step < args.steps:
        for curves, grades in loader:

            def closure(curves=curves, grades=grades):
                base.zero_grad()
                loss = F.cross_entropy(model(curves), grades, label_smoothing=0.1)
                loss.backward()
                return loss.detach()

            loss = optimizer.step(closure)
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f} away {accuracy(model, away):.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
