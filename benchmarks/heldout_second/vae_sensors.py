"""A variational autoencoder that learns what normal machine vibration looks like.

expects: ME701
needs: cpu
gain: no
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self, inputs=512, width=256, code=16):
        super().__init__()
        self.into = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.spread = nn.Linear(width, code), nn.Linear(width, code)
        self.out = nn.Sequential(nn.Linear(code, width), nn.Tanh(), nn.Linear(width, inputs))

    def forward(self, x):
        hidden = self.into(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        return self.out(code), mean, spread


class Diary:
    """Remembers how every batch was reconstructed, for a summary at the end."""

    def __init__(self, detached):
        self.detached = detached
        self.errors = []

    def note(self, made, wanted):
        error = (made - wanted).square()
        self.errors.append(error.detach().mean(1) if self.detached else error)  # guilty

    def summary(self):
        return torch.stack([error.mean() for error in self.errors[-20:]]).mean().item()


def vibration(batch):
    time = torch.arange(512) / 512
    speed = 5 + 40 * torch.rand(batch, 1)
    return torch.sin(2 * torch.pi * speed * time) + 0.1 * torch.randn(batch, 512)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=140)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
vae = Vae()
diary = Diary(detached=args.fixed)
adam = torch.optim.Adam(vae.parameters(), lr=1e-3)
step = 0
while step < args.steps:
    x = vibration(args.batch)
    made, mean, spread = vae(x)
    surprise = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1).mean()
    loss = nn.functional.mse_loss(made, x, reduction="sum") / len(x) + surprise
    adam.zero_grad()
    loss.backward()
    adam.step()
    diary.note(made, x)
    step += 1
print(f"error over the last batches: {diary.summary():.4f}")
