"""A small diffusion model of blobs with an average of its weights, a Trainer and callbacks that keep the best state.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_blobs(n, seed, size=24):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    centre, scale = torch.rand(n, 2, 1, 1, generator=g) - 0.5, 0.1 + 0.2 * torch.rand(n, 1, 1, generator=g)
    dist = (yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2
    return (2 * torch.exp(-dist / scale**2) - 1).unsqueeze(1)


class Block(nn.Module):
    def __init__(self, i, o, time):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, 1, 1), nn.Conv2d(o, o, 3, 1, 1)
        self.norm, self.time = nn.GroupNorm(8, o), nn.Linear(time, o)
        self.skip = nn.Conv2d(i, o, 1)

    def forward(self, x, t):
        h = F.silu(self.norm(self.a(x))) + self.time(t)[..., None, None]
        return F.silu(self.b(h)) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=32, time=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, time), nn.SiLU(), nn.Linear(time, time))
        self.one, self.two = Block(1, width, time), Block(width, 2 * width, time)
        self.mid, self.low = Block(2 * width, 8 * width, time), Block(8 * width, 2 * width, time)
        self.up = Block(4 * width, width, time)
        self.out = nn.Conv2d(2 * width, 1, 3, 1, 1)

    def forward(self, x, t):
        freq = torch.exp(-math.log(1000) * torch.arange(16) / 16)
        t = self.time(torch.cat([torch.sin(t[:, None] * freq), torch.cos(t[:, None] * freq)], 1))
        a = self.one(F.avg_pool2d(x, 2), t)
        b = self.two(F.avg_pool2d(a, 2), t)
        c = self.low(self.mid(F.avg_pool2d(b, 2), t), t)
        d = self.up(torch.cat([F.interpolate(c, scale_factor=2), b], 1), t)
        d = F.interpolate(torch.cat([F.interpolate(d, scale_factor=2), a], 1), scale_factor=2)
        return self.out(d)


class Callback:
    def on_step(self, trainer, loss):
        pass


class Average(Callback):
    def __init__(self, model, decay=0.995):
        self.decay, self.weights = decay, [p.detach().clone() for p in model.parameters()]

    def on_step(self, trainer, loss):
        torch._foreach_lerp_(self.weights, [p.detach() for p in trainer.model.parameters()], 1 - self.decay)


class Report(Callback):
    def on_step(self, trainer, loss):
        if trainer.step % 50 == 0:
            print(f"step {trainer.step} loss {loss:.4f} smooth {trainer.smooth:.4f}")


class KeepBest(Callback):
    """Writes the state when the smoothed loss is the lowest so far."""

    def __init__(self, path, average, patience):
        self.path, self.average, self.patience = path, average, patience
        self.best, self.last = math.inf, 0

    def on_step(self, trainer, loss):
        if trainer.smooth < self.best and trainer.step - self.last >= self.patience:  # guilty
            self.best, self.last = trainer.smooth, trainer.step
            state = {
                "step": trainer.step,
                "model": trainer.model.state_dict(),
                "average": self.average.weights,
                "optimizer": trainer.optimizer.state_dict(),
            }
            torch.save(state, self.path)  # guilty


class Trainer:
    def __init__(self, model, data, lr=1e-3):
        self.model, self.data = model, data
        self.optimizer = torch.optim.Adam(model.parameters(), lr)
        self.alpha = torch.cos(torch.linspace(0.02, 1.5, 200)) ** 2
        self.step, self.smooth = 0, None

    def fit(self, steps, callbacks, batch=10):
        for self.step in range(1, steps + 1):
            x = self.data[torch.randint(0, len(self.data), (batch,))]
            t, noise = torch.randint(0, 200, (batch,)), torch.randn_like(x)
            a = self.alpha[t].view(-1, 1, 1, 1)
            loss = F.mse_loss(self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t.float()), noise)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            value = loss.item()
            self.smooth = value if self.smooth is None else 0.99 * self.smooth + 0.01 * value
            for callback in callbacks:
                callback.on_step(self, value)  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=260)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(12)
    trainer = Trainer(UNet(), make_blobs(800, 1))
    average = Average(trainer.model)
    with tempfile.TemporaryDirectory() as folder:
        best = KeepBest(Path(folder) / "best.pt", average, 100 if args.fixed else 1)
        trainer.fit(args.steps, [average, Report(), best])


if __name__ == "__main__":
    main()
