"""Denoising diffusion of points on a plane, with a thread that takes the metrics off the training loop.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
import queue
import threading
import time

import torch
from torch import nn

STOP = object()


class MetricThread(threading.Thread):
    """Smooths what the loop hands over and keeps it by name."""

    def __init__(self, blocking):
        super().__init__(daemon=True)
        self.inbox = queue.SimpleQueue()
        self.values, self.blocking, self.idle_since = {}, blocking, time.time()

    def run(self):
        while True:
            if self.blocking:
                item = self.inbox.get()
            else:
                try:
                    item = self.inbox.get_nowait()  # guilty
                except queue.Empty:
                    self.idle_for = time.time() - self.idle_since  # guilty
                    continue  # guilty
            if item is STOP:
                return
            self.idle_since = time.time()
            name, value = item
            old = self.values.get(name, value)
            self.values[name] = 0.95 * old + 0.05 * value

    def put(self, name, value):
        self.inbox.put((name, value))

    def close(self):
        self.inbox.put(STOP)
        self.join()


class TimeMLP(nn.Module):
    def __init__(self, width=224, depth=6):
        super().__init__()
        self.inp, self.time = nn.Linear(2, width), nn.Linear(32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, 2)
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(1000), 16)))

    def forward(self, x, t):
        angle = t.unsqueeze(1) * self.freq
        emb = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + emb)
        return self.out(h)


class Diffusion:
    def __init__(self, steps=200):
        beta = torch.linspace(1e-4, 0.04, steps)
        self.alpha_bar = torch.cumprod(1 - beta, 0)
        self.steps = steps

    def loss(self, model, x):
        t = torch.randint(0, self.steps, (len(x),))
        noise = torch.randn_like(x)
        a = self.alpha_bar[t].unsqueeze(1)
        return nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t / self.steps), noise)


def checkerboard(n):
    x = torch.rand(n) * 4 - 2
    y = torch.rand(n) + torch.randint(0, 2, (n,)) * 2 - 2 + torch.floor(x) % 2
    return torch.stack([x, y], 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=384)
    args = parser.parse_args()
    torch.manual_seed(0)
    monitor = MetricThread(blocking=args.fixed)
    monitor.start()
    model, diffusion = TimeMLP(), Diffusion()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        loss = diffusion.loss(model, checkerboard(args.batch_size))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        monitor.put("loss", loss.item())
        monitor.put("grad_norm", norm.item())
        if step % 50 == 0:
            print(step, {k: round(v, 4) for k, v in monitor.values.items()})
    monitor.close()


if __name__ == "__main__":
    main()
