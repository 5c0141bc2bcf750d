"""Multi-task driver monitoring (gaze, drowsiness, hands) with projected conflicting gradients.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 48


def make_frames(count, seed):
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    gaze = torch.rand(count, 2, generator=g) * 1.2 - 0.6
    open_eyes = torch.rand(count, generator=g)
    hands = torch.randint(3, (count,), generator=g)
    frames = 0.2 * torch.randn(count, 3, SIDE, SIDE, generator=g)
    dx, dy = x - gaze[:, 0, None, None], y - gaze[:, 1, None, None]
    frames[:, 0] += torch.exp(-(dx**2 + (dy / (0.2 + open_eyes[:, None, None])) ** 2) * 15)
    for side in (1, 2):
        shown = (hands >= side).float()[:, None, None]
        centre = 0.5 if side == 1 else -0.5
        frames[:, 1] += shown * torch.exp(-((x - centre) ** 2 + (y - 0.8) ** 2) * 20)
    return frames, gaze, open_eyes, hands


class Cabin(nn.Module):
    """One shared trunk, three heads."""

    def __init__(self, width=24):
        super().__init__()
        layers, narrow = [], 3
        for wide, stride in ((width, 1), (width, 2), (2 * width, 1), (2 * width, 2), (3 * width, 1), (3 * width, 2)):
            layers += [nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
            narrow = wide
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.heads = nn.ModuleDict(
            {
                "gaze": nn.Sequential(nn.Linear(narrow * 4, 48), nn.ReLU(), nn.Linear(48, 2)),
                "eyes": nn.Sequential(nn.Linear(narrow * 4, 48), nn.ReLU(), nn.Linear(48, 1)),
                "hands": nn.Sequential(nn.Linear(narrow * 4, 48), nn.ReLU(), nn.Linear(48, 3)),
            }
        )

    def forward(self, frames):
        shared = self.trunk(frames)
        return {name: head(shared) for name, head in self.heads.items()}


def task_losses(out, gaze, eyes, hands):
    return {
        "gaze": F.smooth_l1_loss(out["gaze"], gaze),
        "eyes": F.binary_cross_entropy_with_logits(out["eyes"].squeeze(1), eyes),
        "hands": F.cross_entropy(out["hands"], hands),
    }


class Surgery:
    """Takes the gradient of each task and removes what points against another task (PCGrad)."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.shared = list(model.trunk.parameters())

    def gradients(self, losses):
        flat = []
        for number, (name, loss) in enumerate(losses.items(), 1):
            own = list(self.model.heads[name].parameters())
            grads = torch.autograd.grad(loss, self.shared + own, retain_graph=number < len(losses))
            flat.append(torch.cat([g.flatten() for g in grads[: len(self.shared)]]))
            for parameter, grad in zip(own, grads[len(self.shared) :]):
                parameter.grad = grad
        return flat

    def step(self, losses):
        flat = self.gradients(losses)
        total = torch.zeros_like(flat[0])
        for i, original in enumerate(flat):
            grad = original.clone()
            others = [j for j in range(len(flat)) if j != i]
            random.shuffle(others)
            for j in others:
                along = torch.dot(grad, flat[j])
                if along < 0:
                    grad -= along / flat[j].square().sum() * flat[j]
            total += grad
        for parameter, part in zip(self.shared, total.split([p.numel() for p in self.shared])):
            parameter.grad = part.view_as(parameter)
        self.optimizer.step()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(43)
    random.seed(43)

    loader = DataLoader(TensorDataset(*make_frames(1200, 47)), args.batch_size, shuffle=True, drop_last=True)
    model = Cabin().to(memory_format=torch.channels_last)
    surgery = Surgery(model, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9))
    step = 0
    while step < args.steps:
        for frames, *targets in loader:
            frames = frames.contiguous(memory_format=torch.channels_last)
            losses = task_losses(model(frames), *targets)
            surgery.step(losses)
            step += 1
            if step % 30 == 0:
                print(f"step {step} " + " ".join(f"{name} {loss.item():.3f}" for name, loss in losses.items()))
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
