"""Tells the bearing condition of ferry engines from vibration records: transformer on patches, sharpness-aware steps.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CONDITIONS, LENGTH, PATCH = 6, 768, 16


def vibrations(count, seed):
    """Shaft harmonics plus rings of a defect; its rate is given by the condition."""
    rng = np.random.default_rng(seed)
    condition = rng.integers(0, CONDITIONS, count)
    t = np.arange(LENGTH) / LENGTH
    shaft = rng.uniform(8, 12, (count, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 3, 1))
    wave = sum(np.sin(2 * np.pi * shaft * (k + 1) * t + phase[:, k]) / (k + 1) for k in range(3))
    since = (t * shaft * (1 + 0.55 * condition[:, None])) % 1
    rings = np.exp(-12 * since) * np.sin(140 * since) * (condition > 0)[:, None]
    records = wave + 1.4 * rings + rng.normal(0, 0.5, (count, LENGTH))
    return torch.from_numpy(records.astype(np.float32)), torch.from_numpy(condition)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0)).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.narrow(F.relu(self.wide(self.norms[1](x))))


class Listener(nn.Module):
    def __init__(self, width=128, layers=2):
        super().__init__()
        self.patch = nn.Linear(PATCH, width)
        self.place = nn.Parameter(torch.randn(LENGTH // PATCH, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CONDITIONS))

    def forward(self, records):
        x = self.patch(records.unflatten(1, (-1, PATCH))) + self.place
        return self.head(self.layers(x).mean(1))


class SharpnessAware:
    """Climbs to the worst point in a ball of radius rho, takes the gradient there and steps from the old weights."""

    def __init__(self, base, rho):
        self.base, self.rho = base, rho
        self.weights = [weight for group in base.param_groups for weight in group["params"]]

    @torch.no_grad()
    def climb(self):
        slopes = [weight.grad for weight in self.weights]
        norm = torch.stack(torch._foreach_norm(slopes)).norm().item()
        self.moved = torch._foreach_mul(slopes, self.rho / (norm + 1e-12))
        torch._foreach_add_(self.weights, self.moved)
        return norm

    @torch.no_grad()
    def descend(self):
        torch._foreach_sub_(self.weights, self.moved)
        self.base.step()

    def step(self, closure):
        self.base.zero_grad()
        loss = closure()
        norm = self.climb()
        self.base.zero_grad()
        worst = closure()
        self.descend()
        return loss.item(), worst.item(), norm


def augment(records, dice):
    """Another gain and another start of the window for each record."""
    shift = torch.randint(0, LENGTH, (len(records), 1), generator=dice)
    gain = torch.empty(len(records), 1).uniform_(0.8, 1.25, generator=dice)
    return gain * records.gather(1, (torch.arange(LENGTH) + shift) % LENGTH)


@torch.no_grad()
def evaluate(model, records, condition):
    model.eval()
    right = (model(records).argmax(1) == condition).float().mean().item()
    model.train()
    return right


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=12)
    cli.add_argument("--rho", type=float, default=0.05)
    args = cli.parse_args()
    torch.manual_seed(14)
    dice = torch.Generator().manual_seed(15)

    records, condition = vibrations(2000, seed=7)
    held_out = vibrations(48, seed=8)
    model = Listener()
    optimizer = SharpnessAware(torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.02), args.rho)
    sharpness = []
    for step in range(1, args.steps + 1):
        for group in optimizer.base.param_groups:
            group["lr"] = 1e-3 * min(step / 20, 0.5 + 0.5 * math.cos(math.pi * step / (args.steps + 1)))
        chosen = torch.randint(0, len(condition), (args.batch,), generator=dice)
        batch, wanted = augment(records[chosen], dice), condition[chosen]

        def closure():
            loss = F.cross_entropy(model(batch), wanted)
            loss.backward()
            return loss

        loss, worst, norm = optimizer.step(closure)
        sharpness.append(worst - loss)
        if step % 50 == 0 or step == args.steps:
            print(
                f"step {step} loss {loss:.3f} sharpness {np.mean(sharpness):.4f} gradient {norm:.2f} "
                f"held-out accuracy {evaluate(model, *held_out):.3f}"
            )
            sharpness.clear()


if __name__ == "__main__":
    main()
