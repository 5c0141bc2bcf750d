"""Knowledge distillation: a large net that stays as it is teaches a small one; soft labels and a hint.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, widths, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1)
        self.stages = nn.ModuleList()
        for i, w in enumerate(widths):
            cin = widths[max(i - 1, 0)]
            self.stages.append(
                nn.Sequential(
                    *(nn.Conv2d(cin, w, 3, 2, 1), nn.BatchNorm2d(w), nn.ReLU(inplace=True)),
                    *(nn.Conv2d(w, w, 3, 1, 1), nn.BatchNorm2d(w), nn.ReLU(inplace=True)),
                )
            )
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        feat = x.mean((2, 3))
        return self.fc(feat), feat


class DistillationLoss(nn.Module):
    def __init__(self, student_dim, teacher_dim, temperature=4.0, alpha=0.7, beta=0.1):
        super().__init__()
        self.hint = nn.Linear(student_dim, teacher_dim)
        self.t, self.alpha, self.beta = temperature, alpha, beta

    def forward(self, student, teacher, target):
        (s_logits, s_feat), (t_logits, t_feat) = student, teacher
        soft = F.kl_div(
            F.log_softmax(s_logits / self.t, 1),
            F.log_softmax(t_logits / self.t, 1),
            log_target=True,
            reduction="batchmean",
        )
        hard = F.cross_entropy(s_logits, target)
        return (
            self.alpha * self.t**2 * soft + (1 - self.alpha) * hard + self.beta * F.mse_loss(self.hint(s_feat), t_feat)
        )


def pictures(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=g)
    basis = torch.randn(10, 3, 8, 8, generator=g)
    x = F.interpolate(basis[y], scale_factor=4) + 0.8 * torch.randn(n, 3, 32, 32, generator=g)
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=125)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, y = pictures(960)
    loader = DataLoader(TensorDataset(x, y), args.batch_size, shuffle=True, drop_last=True)
    teacher, student = ConvNet([32, 64, 96]), ConvNet([16, 32, 48])
    teacher.eval()
    criterion = DistillationLoss(48, 96)
    optimizer = torch.optim.SGD([*student.parameters(), *criterion.parameters()], 0.02, momentum=0.9)
    teaching = torch.no_grad if args.fixed else contextlib.nullcontext
    step = 0
    while step < args.steps:
        for images, target in loader:
            with teaching():
                lesson = teacher(images)  # guilty
            loss = criterion(student(images), lesson, target)
            optimizer.zero_grad()
            loss.backward()  # guilty
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print(f"step {step}: {loss.item():.4f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
