"""Foretells whether a patient comes back, without giving away any single patient: clipped and noised gradients.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap


def admit(count, numbers=40, seed=0):
    """Findings of a visit as numbers; coming back depends on a few mixed findings."""
    law, draw = torch.Generator().manual_seed(11), torch.Generator().manual_seed(seed)
    findings = torch.randn(count, numbers, generator=draw)
    mixes = torch.randn(numbers, 5, generator=law) / math.sqrt(numbers)
    urge = (1.5 * findings @ mixes).tanh().sum(1) + 0.5 * torch.randn(count, generator=draw)
    return findings, (urge > 0).float()


class VisitNet(nn.Module):
    def __init__(self, numbers=40, width=160):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(numbers, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, findings):
        return self.layers(findings).squeeze(-1)


class PrivateTrainer:
    """Each patient's gradient is clipped by its own norm before the sum; then comes noise of the size of the clip."""

    def __init__(self, model, clip, noise, rate, seed):
        self.model, self.clip, self.noise = model, clip, noise
        self.weights = dict(model.named_parameters())
        self.optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
        self.draw = torch.Generator().manual_seed(seed)
        self.each = vmap(grad_and_value(self.loss), in_dims=(None, 0, 0))

    def loss(self, weights, findings, back):
        said = functional_call(self.model, weights, (findings[None],))
        return F.binary_cross_entropy_with_logits(said, back[None])

    def step(self, findings, back):
        fixed = {name: weight.detach() for name, weight in self.weights.items()}
        pulls, losses = self.each(fixed, findings, back)
        sizes = torch.stack([pull.flatten(1).norm(dim=1) for pull in pulls.values()]).norm(dim=0)
        shares = (self.clip / sizes.clamp(min=1e-9)).clamp(max=1)
        for name, weight in self.weights.items():
            pull = torch.einsum("n,n...->...", shares, pulls[name])
            pull += self.noise * self.clip * torch.randn(pull.shape, generator=self.draw)
            weight.grad = pull / len(findings)
        self.optimizer.step()
        return losses.mean(), shares.lt(1).float().mean()


@torch.no_grad()
def accuracy(model, findings, back):
    return ((model(findings) > 0).float() == back).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    torch.manual_seed(110)

    findings, back = admit(20_000, seed=1)
    held = admit(1_000, seed=2)
    trainer = PrivateTrainer(VisitNet(), clip=1.0, noise=0.8, rate=0.3, seed=3)
    draw = torch.Generator().manual_seed(4)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(findings), (args.batch,), generator=draw)
        loss, clipped = trainer.step(findings[rows], back[rows])
        if step % 50 == 0:
            right = accuracy(trainer.model, *held)
            print(f"step {step} loss {loss.item():.4f} clipped {clipped.item():.2f} held out {right:.3f}")


if __name__ == "__main__":
    main()
